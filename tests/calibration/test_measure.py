"""Measuring an engine: what is planned is run and kept, a stopped measurement goes on, a fault loses nothing."""

import errno
import itertools
import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rollsim.calibration import measurement
from rollsim.calibration.engine_faults import EngineFailed, EngineUnfit
from rollsim.calibration.measure import measure
from rollsim.simulator.judge_report import judge
from rollsim.simulator.recording import read_recordings
from rollsim.traces.errors import BadInput
from rollsim.traces.schema import TABLES
from tests.calibration.fake_engine import FakeEngine

MINUTES = 0.001


@pytest.fixture
def engine(monkeypatch):
    """A class of its own for each test, so that what it counts is the test's."""

    class Engine(FakeEngine):
        opened = 0
        recorded: list[str] = []  # noqa: RUF012
        fail: dict[str, BaseException] = {}  # noqa: RUF012

    return Engine


@pytest.fixture
def model(tmp_path) -> str:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    return str(tmp_path / "tiny")


def manifest(out: Path) -> dict:
    return json.loads((out / "manifest.json").read_text())


def test_everything_planned_is_kept_and_equal_to_the_simulator(tmp_path, model, engine):
    shown: list[float] = []
    document = measure(
        model, tmp_path / "m", minutes=MINUTES, open_engine=engine, progress=lambda share, _: shown.append(share)
    )
    files = sorted((tmp_path / "m" / "recordings").iterdir())
    planned = manifest(tmp_path / "m")["planned"]
    assert {file.stem for file in files} == {batch["name"] for batch in planned}
    assert {batch["role"] for batch in planned} == {"fit", "held_out", "reference"}
    outcome = judge([recording for file in files for recording in read_recordings(file)])
    assert [row["name"] for row in outcome["recordings"] if not row["equal"]] == []
    assert document["faults"] == []
    assert shown == sorted(shown)
    assert shown[-1] == 1
    assert not (tmp_path / "m" / "engine.log").exists()


def test_the_tables_hold_every_step_and_request_of_every_run(tmp_path, model, engine):
    measure(model, tmp_path / "m", minutes=MINUTES, open_engine=engine)
    steps, rollouts = (pq.read_table(tmp_path / "m" / f"{name}.parquet") for name in ("engine_steps", "rollouts"))
    assert steps.schema.names == TABLES["engine_steps"].names
    assert rollouts.schema.names == TABLES["rollouts"].names
    recordings = {file.stem: json.loads(file.read_text()) for file in (tmp_path / "m" / "recordings").iterdir()}
    runs = {name: len(recording["repeats"]) for name, recording in recordings.items()}
    assert Counter(steps["batch"].to_pylist()) == {
        name: runs[name] * recording["steps"] for name, recording in recordings.items()
    }
    assert rollouts.num_rows == sum(runs[name] * len(recording["requests"]) for name, recording in recordings.items())
    rows = rollouts.to_pylist()
    assert all(row["t_submit_s"] < row["t_end_s"] for row in rows if row["status"] == "finished")
    one = next(row for row in rows if row["run_id"] == "full_0001_short/0")
    own = recordings["full_0001_short"]
    assert one["t_end_s"] == pytest.approx(sum(own["wall_ms"]) / 1e3)


def test_the_reference_is_strewn_through_the_first_round(tmp_path, model, engine):
    measure(model, tmp_path / "m", minutes=MINUTES, open_engine=engine)
    assert manifest(tmp_path / "m")["spent_s"] < 60
    places = [i for i, name in enumerate(engine.recorded) if name == "reference"]
    assert len(places) >= 5
    assert min(later - earlier for earlier, later in itertools.pairwise(places)) > 2


def test_with_more_time_batches_are_run_again(tmp_path, model, engine):
    measure(model, tmp_path / "m", minutes=MINUTES, open_engine=engine)
    once = Counter(engine.recorded)
    assert once["all_at_once"] == 1
    measure(model, tmp_path / "m", minutes=manifest(tmp_path / "m")["spent_s"] / 60 + 0.1, open_engine=engine)
    assert Counter(engine.recorded)["all_at_once"] > 1


@pytest.mark.parametrize(
    "error",
    [
        EngineFailed("the engine's process was killed"),
        EngineFailed("out of memory: 2 GiB"),
        KeyboardInterrupt(),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
    ids=["crash", "memory", "interrupt", "disk"],
)
def test_what_was_measured_is_kept_and_a_rerun_goes_on(tmp_path, model, engine, error):
    engine.fail["kv_full_groups"] = error
    with pytest.raises(type(error)):
        measure(model, tmp_path / "m", minutes=MINUTES, open_engine=engine)
    kept = {file.name: file.read_bytes() for file in (tmp_path / "m" / "recordings").iterdir()}
    assert len(kept) > 5
    assert pq.read_table(tmp_path / "m" / "engine_steps.parquet").num_rows > 0
    done = Counter(engine.recorded)
    engine.fail.clear()
    document = measure(model, tmp_path / "m", minutes=MINUTES, open_engine=engine)
    assert len(document["batches"]) == document["planned"]
    for name, content in kept.items():
        assert (tmp_path / "m" / "recordings" / name).read_bytes() == content
    again = Counter(engine.recorded) - done
    assert {f"{name}.json" for name in again} & kept.keys() == set()


def test_a_complete_measurement_is_left_as_it_is(tmp_path, model, engine):
    measure(model, tmp_path / "m", minutes=MINUTES, open_engine=engine)
    before = {file: file.read_bytes() for file in (tmp_path / "m" / "recordings").iterdir()}
    measure(model, tmp_path / "m", minutes=MINUTES, open_engine=engine)
    assert {file: file.read_bytes() for file in (tmp_path / "m" / "recordings").iterdir()} == before


@pytest.mark.parametrize("change", ["model", "version", "seed", "options"])
def test_another_measurement_is_refused_and_left_alone(tmp_path, model, engine, change):
    out = tmp_path / "m"
    measure(model, out, minutes=MINUTES, open_engine=engine)
    before = (out / "manifest.json").read_bytes()
    arguments: dict = {"seed": 0, "options": {}}
    if change == "model":
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "config.json").write_text("{}")
        model = str(tmp_path / "other")
    elif change == "version":
        engine.version = "0.33.0"
    else:
        arguments[change] = {"seed": 1, "options": {"max_num_batched_tokens": 64}}[change]
    with pytest.raises(BadInput) as refused:
        measure(model, out, minutes=MINUTES, open_engine=engine, **arguments)
    assert any(change in fault.place for fault in refused.value.faults)
    assert (out / "manifest.json").read_bytes() == before


def test_a_run_that_takes_other_steps_is_kept_apart(tmp_path, model, engine):
    out = tmp_path / "m"
    measure(model, out, minutes=MINUTES, open_engine=engine)
    folder = measurement.Measurement(out)
    run = folder.recording("tail_drain")
    assert run is not None
    run["rows"][7][4] += 1
    assert folder.add("tail_drain", run) == 7
    kept = folder.recording("tail_drain")
    assert kept is not None
    assert (len(kept["repeats"]), [entry["first_step"] for entry in kept["differing"]]) == (1, [7])
    assert "tail_drain" in folder.manifest["faults"][0]


def test_what_an_engine_cannot_do_is_said_beside_the_other_timings(tmp_path, model, engine):
    engine.fail |= {"speculation": EngineFailed("no such draft model"), "sleep_wake": EngineUnfit("no sleep")}
    extras = measure(model, tmp_path / "m", minutes=MINUTES, open_engine=engine)["extras"]
    assert extras["speculation_ngram"] == {"not_timed": "no such draft model"}
    assert extras["sleep_wake"] == {"not_timed": "no sleep"}
    assert extras["abort_resume"] == {"took_s": 0.001}


def test_an_engine_that_refuses_the_model_is_bad_input(tmp_path, model):
    def refuse(*_):
        raise EngineUnfit("vLLM cannot open it: No available memory for the cache blocks")

    with pytest.raises(BadInput, match="No available memory"):
        measure(model, tmp_path / "m", open_engine=refuse)


@pytest.mark.parametrize("place", ["file", "empty", "missing", "dots"])
def test_what_is_no_model_is_refused_before_an_engine_is_opened(tmp_path, engine, place):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    name = "./nowhere" if place == "dots" else str(tmp_path / place)
    with pytest.raises(BadInput) as refused:
        measure(name, tmp_path / "m", open_engine=engine)
    assert refused.value.faults[0].file == name
    assert engine.opened == 0
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("kind", ["file", "other things", "other format", "other schema", "broken"])
def test_a_folder_that_is_no_measurement_is_refused(tmp_path, model, engine, kind):
    out = tmp_path / "m"
    if kind == "file":
        out.write_text("")
    else:
        out.mkdir()
        content = {
            "other things": ("notes.txt", "mine"),
            "other format": ("manifest.json", '{"format": "rollsim-run"}'),
            "other schema": ("manifest.json", '{"format": "rollsim-measurement", "schema_version": 9}'),
            "broken": ("manifest.json", '{"format":'),
        }[kind]
        (out / content[0]).write_text(content[1])
    with pytest.raises(BadInput) as refused:
        measure(model, out, open_engine=engine)
    assert refused.value.faults[0].file.startswith(str(out))
    assert engine.opened == 0


def test_a_file_is_written_whole_or_not_at_all(tmp_path, model, engine, monkeypatch):
    out = tmp_path / "m"
    measure(model, out, minutes=MINUTES, open_engine=engine)
    before = (out / "manifest.json").read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(measurement.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        measurement.Measurement(out).save()
    assert (out / "manifest.json").read_bytes() == before
    assert not list(out.glob(".*partial"))

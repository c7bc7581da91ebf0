"""An imported log beside its simulation: no gap where it is the simulation, each known gap where it was put."""

import json
from dataclasses import replace

import numpy as np
import pytest
import yaml

from rollsim.calibration.log_beside import beside, text
from rollsim.calibration.logged_world import LoggedWorld
from rollsim.cli.app import main
from tests.calibration.test_log_fit import config, lengths, write_log

PHASES = ("generate_s", "switch_s", "logprob_s", "train_s", "weight_sync_s")


def simulated_log(**factors: float):
    """What the config's own simulation takes, some phases times a factor."""
    told = lengths(12)
    columns = LoggedWorld(config(), told, "c").run(12, {}).columns
    seconds = {name: columns[name] * factors.get(name, 1.0) for name in PHASES}
    return replace(told, seconds=seconds | {"step_s": np.sum(list(seconds.values()), axis=0)})


def test_a_simulation_has_no_gap_to_itself():
    said = beside(simulated_log(), config(), "c")
    for row in (*said["phases"], said["step"]):
        assert row["gap_s"] == pytest.approx(0, abs=1e-9)
        assert row["order"] is None or row["order"] == pytest.approx(1)
    assert "No phase is further" in text(said)


@pytest.mark.parametrize("slow", ["generate_s", "train_s", "weight_sync_s"])
def test_a_gap_is_found_where_it_was_put(slow):
    """Half of a phase is missing in the simulation; nothing else is."""
    said = beside(simulated_log(**{slow: 2.0}), config(), "c")
    errors = {row["name"]: row["error"] for row in said["phases"] if row["measured_s"] > 1e-6}
    assert errors.pop(slow) == pytest.approx(-0.5)
    assert all(error == pytest.approx(0, abs=1e-9) for error in errors.values())


@pytest.mark.parametrize(
    "untold", [["logprob_s"], ["switch_s"], ["switch_s", "weight_sync_s"], ["logprob_s", "switch_s"]]
)
def test_what_a_log_does_not_tell_apart_is_in_what_it_tells(untold):
    """Passes are trained with, the rest is the rest; the parts still add up to a step."""
    log = simulated_log()
    seconds = {name: values for name, values in log.seconds.items() if name not in untold}
    if "logprob_s" in untold:
        seconds["train_s"] = seconds["train_s"] + log.seconds["logprob_s"]
    said = beside(replace(log, seconds=seconds), config(), "c")
    for row in (*said["phases"], said["step"]):
        assert row["gap_s"] == pytest.approx(0, abs=1e-9)
    assert sum(row["measured_s"] for row in said["phases"]) == pytest.approx(log.seconds["step_s"].mean())


def test_checkpoints_and_validations_are_of_neither_side():
    log = simulated_log()
    pause = np.full(12, 30.0)
    seconds = log.seconds | {"validation_s": pause, "step_s": log.seconds["step_s"] + pause}
    assert beside(replace(log, seconds=seconds), config(), "c")["step"]["gap_s"] == pytest.approx(0, abs=1e-9)


@pytest.fixture
def imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config().model_dump(mode="json")))
    write_log(tmp_path / "run.jsonl", simulated_log(train_s=1.5))
    with pytest.raises(SystemExit) as end:
        main(["import", "run.jsonl", "--out", "imported", "--quiet"])
    assert not end.value.code
    return tmp_path


def run(capsys, *words):
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(list(words))
    out, err = capsys.readouterr()
    return end.value.code, out, err


def test_command(imported, capsys):
    code, out, _ = run(capsys, "compare", "imported", "c.yaml")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "of train" in " ".join(out.split())
    assert "does not tell how many trajectories" in " ".join(out.split())
    code, out, _ = run(capsys, "compare", "imported", "c.yaml", "train.mfu=0.1", "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)["phases"]}
    assert rows["train_s"]["simulated_s"] > rows["train_s"]["measured_s"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("imported", "no.yaml"), "no.yaml"),
        (("nowhere", "c.yaml"), "nowhere"),
        (("imported", "c.yaml", "train.mfuu=0.1"), "train.mfu"),
        (("imported", "imported", "train.mfu=0.1"), "settings belong to a config"),
    ],
)
def test_bad_words(imported, capsys, words, said):
    code, _, err = run(capsys, "compare", *words)
    assert code == 2
    assert said in err
    assert "Traceback" not in err

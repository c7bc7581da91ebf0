"""What is exported and imported again has the KPIs that the format can carry, equal; docs/logs.md says which."""

import json
import re

import numpy as np
import pytest

from rollsim.cli.app import main
from rollsim.traces.errors import BadInput
from rollsim.traces.exporters.export import FORMATS, export
from rollsim.traces.importers.log import read_log
from rollsim.traces.kpis import kpis
from rollsim.traces.metric_names import FRAMEWORKS
from rollsim.traces.run import Run
from rollsim.traces.step_kpis import step_kpis

TIMES = {"step_s", "later_s", "spread_s", "span_s"}
LATE = {"checkpoint_s", "validation_s"}
PARTS = {
    "verl": {"generate_s", "reward_s", "switch_s", "logprob_s", "train_s", "weight_sync_s"} | LATE,
    "areal": {"generate_s", "switch_s", "logprob_s", "train_s", "weight_sync_s"} | LATE,
    "slime": {"generate_s", "logprob_s", "train_s", "weight_sync_s", "checkpoint_s"},
    "openrlhf": {"generate_s", "logprob_s", "train_s", "weight_sync_s"},
    "nemo-rl": {"generate_s", "reward_s", "logprob_s", "train_s", "weight_sync_s"},
    "prime-rl": {"generate_s", "train_s", "weight_sync_s", "checkpoint_s"},
    "skyrl": {"generate_s", "logprob_s", "train_s", "weight_sync_s"} | LATE,
    "trl": {"generate_s", "train_s", "weight_sync_s"},
}
# AReaL has no name for the time of a step: of the first it is not known.
KEPT = dict.fromkeys(FRAMEWORKS, TIMES) | {
    "verl": TIMES | {"gpus", "trained_tokens", "trained_tokens_per_gpu_s"},
    "areal": {"later_s"},
    "nemo-rl": TIMES | {"gpus", "trained_tokens", "trained_tokens_per_gpu_s"},
}
LENGTHS = {
    "verl": {"response_tokens_mean", "response_tokens_min", "response_tokens_max", "prompt_tokens_mean"},
    "areal": {"response_tokens_mean", "prompt_tokens_mean"},
    "slime": {"response_tokens_mean", "response_tokens_min", "response_tokens_max", "truncated_share"},
    "openrlhf": {"response_tokens_mean", "truncated_share"},
    "nemo-rl": {"response_tokens_mean", "response_tokens_max", "prompt_tokens_mean", "truncated_share"},
    "prime-rl": {"response_tokens_mean", "response_tokens_min", "response_tokens_max", "truncated_share"},
    "skyrl": {"response_tokens_mean", "response_tokens_min", "response_tokens_max"},
    "trl": {"response_tokens_mean", "response_tokens_min", "response_tokens_max", "truncated_share"},
}
NOT_OF_A_TABLE = {"output_tokens_per_gpu_s", "load", "gpu_s", "ledger"}


@pytest.fixture(scope="module", params=["sync", "async"])
def run(request, tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / request.param
    words = [f"example:{request.param}", "train.steps=4", "train.prompts_per_step=16", "--quiet", "--out", str(folder)]
    with pytest.raises(SystemExit) as end:
        main(["run", *words])
    assert not end.value.code
    return Run.open(folder)


def again(run: Run, kind: str, folder):
    file = folder / ("trainer_state.json" if kind == "trl" else f"{kind}.jsonl")
    export(run, kind, file)
    log = read_log(file)
    assert (log.framework, log.faults) == (kind, ())
    return log


@pytest.mark.parametrize("kind", FRAMEWORKS)
def test_step_metrics(run, kind, tmp_path):
    log = again(run, kind, tmp_path)
    ours, theirs = step_kpis({name: run.table(name) for name in run.tables}), step_kpis(log.tables)
    for name in KEPT[kind]:
        assert flat(getattr(theirs, name)) == pytest.approx(flat(getattr(ours, name)), rel=1e-9, nan_ok=True), name
    steps = run.table("steps").sort_by("step")
    for name in PARTS[kind] & ours.parts_s.keys():
        assert log.steps[name].to_pylist() == pytest.approx(steps[name].to_pylist(), rel=1e-9, abs=1e-9), name
    assert theirs.parts_s.keys() <= PARTS[kind] | {"other_s"}
    for name in LENGTHS[kind]:
        assert log.steps[name].null_count == 0, name


def test_lengths_of_steps_are_those_of_their_trajectories(run, tmp_path):
    steps = again(run, "slime", tmp_path).steps
    rollouts = run.table("rollouts")
    number = rollouts["step_trained"].to_numpy()
    output = rollouts["output_tokens"].to_numpy()
    for row in steps.to_pylist():
        lengths = output[number == row["step"]]
        assert row["response_tokens_mean"] == pytest.approx(lengths.mean())
        assert (row["response_tokens_min"], row["response_tokens_max"]) == (lengths.min(), lengths.max())


def test_trajectories(run, tmp_path):
    log = again(run, "table", tmp_path)
    ours, theirs = kpis({"rollouts": run.table("rollouts")}).document(), kpis(log.tables).document()
    assert theirs.keys() == ours.keys() >= NOT_OF_A_TABLE
    assert theirs == ours
    for name in ("version_start", "step_trained", "group_id", "reward", "fate", "finish_reason"):
        assert log.rollouts[name].to_pylist() == run.table("rollouts")[name].to_pylist(), name


def test_chrome_timeline(run, tmp_path):
    """Each train step is an event as long as it took, and time is microseconds."""
    export(run, "chrome", tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    steps = run.table("steps").to_pylist()
    trained = {
        event["name"]: event for event in events if event["ph"] == "X" and event["pid"] == 1 and event["tid"] == 1
    }
    assert len(trained) == len(steps)
    for row in steps:
        event = trained[f"step {row['step']}"]
        assert event["ts"] == pytest.approx(row["t0_s"] * 1e6)
        assert event["dur"] == pytest.approx((row["t1_s"] - row["t0_s"]) * 1e6)
    assert {event["ph"] for event in events} == {"M", "X", "C"}


def test_bad_requests(run, tmp_path):
    (tmp_path / "there").write_text("mine")
    for kind, path, wanted in (
        ("verll", tmp_path / "a", "did you mean 'verl'"),
        ("verl", tmp_path / "there", "stands there already"),
        ("verl", tmp_path / "no" / "b", "cannot be written"),
    ):
        with pytest.raises(BadInput, match=wanted):
            export(run, kind, path)
    assert [file.name for file in tmp_path.iterdir()] == ["there"]


def test_the_table_of_the_documentation(repository):
    """One row a format, with the parts of a step that it carries."""
    text = (repository / "docs/logs.md").read_text(encoding="utf-8")
    rows = dict(
        re.findall(r"^\| `([a-z-]+)` \| ([^|]*) \|[^|]*\|$", text.split("## Round trip")[1], flags=re.MULTILINE)
    )
    assert rows.keys() == set(FORMATS) - {"chrome", "perfetto"}
    for name in FRAMEWORKS:
        assert set(re.findall(r"`(\w+_s)`", rows[name])) == PARTS[name]


def flat(value: object) -> list[float]:
    """All numbers of a KPI."""
    if isinstance(value, dict):
        return [number for inner in value.values() for number in flat(inner)]
    if hasattr(value, "__dataclass_fields__"):
        return [number for name in value.__dataclass_fields__ for number in flat(getattr(value, name))]
    return [np.nan if value is None else float(value)]

"""One config from its name to tables."""

import pytest

from rollsim.simulator import simulate
from rollsim.traces.errors import BadInput

SMALL = ("train.steps=3", "train.prompts_per_step=4", "train.samples_per_prompt=2")


def test_every_fault_of_words_and_config_at_once():
    with pytest.raises(BadInput) as error:
        simulate.load("example:sync", ["train.steps", "cluster.gpus=0", "train.stepz=3", "policies.rooting=x"])
    said = str(error.value)
    assert all(word in said for word in ("section.key=value", "cluster.gpus", "train.stepz", "policies.rooting"))


def test_what_names_nothing_is_all_named():
    config = simulate.load("example:sync", ["model.profile=x", "workload.trace=nope.csv"])
    with pytest.raises(BadInput) as error:
        simulate.replications(config, "c", 0, 2)
    assert [fault.file for fault in error.value.faults] == ["c: model.profile", "nope.csv"]


def test_what_names_nothing_is_named_beside_what_is_wrong():
    with pytest.raises(BadInput) as error:
        simulate.load("example:sync", ["model.profile=x", "workload.trace=nope.csv", "train.steps=-1"])
    assert [fault.place or fault.file for fault in error.value.faults] == [
        "train.steps",
        "example:sync: model.profile",
        "nope.csv",
    ]


def test_resolved_says_every_decision_point():
    config = simulate.load("example:sync")
    policies = simulate.resolved(config)["policies"]
    assert policies["readiness"] == "batch"
    assert policies["routing"] == config.policies["routing"]


def test_on_step_counts_the_steps():
    seen = []
    (setup,) = simulate.replications(simulate.load("example:async", SMALL), "c", 0, 1)
    done = simulate.simulate(setup, seen.append)
    assert seen == [1, 2, 3]
    assert not done.broken
    assert done.tables["steps"].num_rows == 3


def test_seeds_follow_each_other():
    config = simulate.load("example:async", SMALL)
    assert [setup.seed for setup in simulate.replications(config, "c", 4, 3)] == [4, 5, 6]


def test_folders(tmp_path):
    assert simulate.run_folders(None, 2) == [None, None]
    assert simulate.run_folders(tmp_path / "a", 1) == [tmp_path / "a"]
    assert simulate.run_folders(tmp_path / "a", 2) == [tmp_path / "a" / "rep-0", tmp_path / "a" / "rep-1"]


@pytest.mark.parametrize("count", [1, 2])
def test_folders_that_hold_something_else_are_refused(tmp_path, count):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(BadInput, match="other things"):
        simulate.run_folders(tmp_path, count)
    with pytest.raises(BadInput, match="is a file"):
        simulate.run_folders(tmp_path / "notes.txt", count)

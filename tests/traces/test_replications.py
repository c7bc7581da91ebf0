"""One run folder or several, and what differs between configs."""

import pytest

from rollsim.traces.errors import BadInput
from rollsim.traces.replications import config_differences, open_replications
from rollsim.traces.writer import write_run


def test_a_run_and_a_folder_of_runs(tmp_path):
    for seed in (2, 1):
        write_run(tmp_path / "many" / f"rep-{seed}", {}, {}, {}, seed=seed)
    assert [run.manifest["seed"] for run in open_replications(tmp_path / "many")] == [1, 2]
    assert [run.manifest["seed"] for run in open_replications(tmp_path / "many" / "rep-2")] == [2]


def test_what_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(BadInput, match="no such folder"):
        open_replications(tmp_path / "absent")
    (tmp_path / "other").mkdir()
    with pytest.raises(BadInput, match="no run in it"):
        open_replications(tmp_path)
    for seed in (1, 2):
        write_run(tmp_path / f"rep-{seed}", {}, {}, {}, seed=seed)
        (tmp_path / f"rep-{seed}" / "config.json").unlink()
    with pytest.raises(BadInput) as caught:
        open_replications(tmp_path)
    assert len(caught.value.faults) == 2


def test_settings_that_differ_by_their_path():
    a = {"train": {"steps": 4, "batch": 8}, "policies": {}, "same": [1, 2]}
    b = {"train": {"steps": 5, "batch": 8}, "policies": {"routing": "x"}, "same": [1, 2]}
    assert config_differences(a, b) == {"train.steps": (4, 5), "policies": ({}, None), "policies.routing": (None, "x")}

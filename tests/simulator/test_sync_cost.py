"""Weight sync and switch: by hand, and against published syncs (the tables of docs/costs.md)."""

import pytest

from rollsim.simulator.profile_parts import Sync
from rollsim.simulator.sync_cost import PATHS, SyncCost, path
from tests.simulator.published import error, shown, table

ROWS = table("Weight syncs")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['path']} {row['model']} {row['where']}")
def test_the_page_shows_what_the_model_says(row):
    cost = SyncCost(PATHS[row["path"]], 1e9 * float(row["GB"]))
    found = cost.sync_s + (cost.switch_s if row["path"] == "colocated" else 0)
    assert (row["model s"], row["error"]) == (shown(found), error(found, float(row["measured s"])))


def test_the_page_shows_every_path():
    shown_paths = {row["path"]: (float(row["fixed s"]), float(row["bytes/s"]), row["grade"]) for row in table("Paths")}
    assert shown_paths == {name: (made.fixed_s, made.bytes_per_s, made.grade) for name, made in PATHS.items()}


def test_fitted_paths_meet_the_rows_they_were_fitted_to():
    fitted = [row for row in ROWS if row["grade"] == "fitted"]
    assert {row["path"] for row in fitted} == {name for name, made in PATHS.items() if made.grade == "fitted"}
    for row in fitted:
        percent = int(row["error"].removesuffix(" %").replace("\N{MINUS SIGN}", "-"))
        assert abs(percent) <= 8, row


def test_parts_by_hand():
    cost = SyncCost(PATHS["disk"], 16e9, replica_gpus=2, offloaded_bytes=50e9)
    assert cost.sync_s == pytest.approx(2 + 16e9 / 2e9)
    assert cost.push_s == pytest.approx(0.5 + 16e9 / 20e9)
    assert cost.pull_s == pytest.approx(0.5 + 8e9 / 50e9)
    assert cost.switch_s == pytest.approx(1 + 50e9 / 25e9)


def test_the_config_wins_over_the_profile_and_that_over_the_default():
    own = {"fixed_s": 9, "bytes_per_s": 1e9, "grade": "measured", "how": "own log"}
    section = Sync.model_validate({"paths": {"nccl": own}})
    assert path("nccl", Sync()) == PATHS["nccl"]
    assert path("disk", section) == PATHS["disk"]
    assert path("nccl", section).how == "own log"
    stated = path("nccl", section, bytes_per_s=2e9)
    assert (stated.fixed_s, stated.bytes_per_s, stated.grade) == (9, 2e9, "assumed")
    assert stated.how == "bytes_per_s stated in the config"

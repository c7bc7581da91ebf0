"""Weight sync and switch: by hand, and against published syncs (the tables of docs/costs.md)."""

import pytest

from rollsim.simulator.profile_parts import Sync
from rollsim.simulator.sync_cost import PATHS, SyncCost, path
from tests.simulator.published import README, error, predicted, shown, table

ROWS = table("Weight syncs")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['path']} {row['model']} {row['where']}")
def test_the_page_shows_what_the_model_says(row):
    cost = SyncCost(PATHS[row["path"]], 1e9 * float(row["GB"]))
    found = cost.sync_s + (cost.switch_s if row["path"] == "colocated" else 0)
    assert (row["model s"], row["error"]) == (shown(found), error(found, float(row["measured s"])))


def test_the_page_shows_every_path():
    rows = table("Paths")
    fixed = {row["path"]: (float(row["fixed s"]), row["fixed is"]) for row in rows}
    rate = {row["path"]: (float(row["bytes/s"]), row["rate is"]) for row in rows}
    assert fixed == {name: (made.fixed_s.value, made.fixed_s.grade) for name, made in PATHS.items()}
    assert rate == {name: (made.bytes_per_s.value, made.bytes_per_s.grade) for name, made in PATHS.items()}


def test_fitted_paths_meet_the_rows_they_were_fitted_to():
    fitted = [row for row in ROWS if row["grade"] == "fitted"]
    numbers = {name: [made.fixed_s.grade, made.bytes_per_s.grade].count("fitted") for name, made in PATHS.items()}
    for name, n in numbers.items():
        assert sum(row["path"] == name for row in fitted) == n, name
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
    log = {"grade": "measured", "how": "own log"}
    own = {"fixed_s": {"value": 9, **log}, "bytes_per_s": {"value": 1e9, **log}}
    section = Sync.model_validate({"paths": {"nccl": own}})
    assert path("nccl", Sync()) == PATHS["nccl"]
    assert path("disk", section) == PATHS["disk"]
    assert path("nccl", section).bytes_per_s.how == "own log"
    stated = path("nccl", section, bytes_per_s=2e9)
    assert (stated.fixed_s.value, stated.fixed_s.grade) == (9, "measured")
    assert (stated.bytes_per_s.value, stated.bytes_per_s.grade) == (2e9, "assumed")
    assert stated.bytes_per_s.how == "stated in the config"


@pytest.mark.parametrize(
    ("relayed", "shared", "parts"),
    [
        (False, False, {"weight sync p2p: fixed_s": "assumed", "weight sync p2p: bytes_per_s": "fitted"}),
        (False, True, {"switch of roles: fixed_s": "assumed", "switch of roles: host_bytes_per_s": "assumed"}),
        (True, False, {"weight sync relay_push: fixed_s": "assumed", "weight sync relay_pull: fixed_s": "assumed"}),
    ],
)
def test_claims_are_those_of_the_numbers_that_a_run_uses(relayed, shared, parts):
    made = SyncCost(PATHS["p2p"], 1e9).claims("p2p", relayed=relayed, shared=shared)
    found = {claim.part: claim.grade for claim in made}
    assert parts.items() <= found.items()
    assert any("p2p" in part for part in found) == (not relayed)
    assert any("switch" in part for part in found) == shared


def test_the_readme_says_how_many_rows_are_met():
    others, met = predicted(ROWS, 20)
    assert f"{others} others {met} are met within 20 %" in " ".join(README.read_text(encoding="utf-8").split())

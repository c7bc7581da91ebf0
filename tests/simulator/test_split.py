"""Splits of a cluster: which there are, and what is said of them, by hand."""

import numpy as np
import pytest

from rollsim.simulator.simulate import load
from rollsim.simulator.split import Split, Tried, _row, _ties, run_splits, share, splits, with_split
from rollsim.traces.errors import BadInput

EVEN, OTHER = Split(2, 2, shared=False), Split(1, 3, shared=False)


def tried(step_s, split=EVEN, *, starved_gpu_s=25.0, stale=(0.5, 2)):
    ledger = [
        {"pool": "train", "category": "train", "gpu_s": 75.0},
        {"pool": "train", "category": "starved", "gpu_s": starved_gpu_s},
        {"pool": "rollout", "category": "decode", "gpu_s": 60.0},
        {"pool": "rollout", "category": "tail_bubble", "gpu_s": 20.0},
        {"pool": "rollout", "category": "throttled", "gpu_s": 15.0},
        {"pool": "rollout", "category": "sync", "gpu_s": 5.0},
    ]
    document = {"kpis": {"ledger": ledger}, "staleness": {"mean": stale[0], "max": stale[1]}}
    return Tried(split, np.array(step_s, float), [document], [])


def test_whole_replicas_and_the_shared_pool():
    config = load("example:large", ["cluster.gpus=16"], shares=False)
    assert [split.name for split in splits(config)] == ["16 shared", "4 : 12", "8 : 8", "12 : 4"]


def test_a_split_takes_its_own_sync_path():
    config = load("example:sync")
    shared = with_split(config, Split(16, 16, shared=True), "c")
    assert (shared.policies["allocation"], shared.sync.path) == ("colocate", "colocated")
    apart = with_split(config, Split(12, 4, shared=False), "c")
    assert apart.policies["allocation"] == {"use": "static_split", "rollout_gpus": 12}
    assert apart.sync.path == "nccl"
    assert with_split(load("example:async", ["sync.path=p2p"]), Split(12, 4, shared=False), "c").sync.path == "p2p"


def test_train_gpus_must_hold_whole_model_copies():
    config = load("example:large", ["cluster.gpus=16", "train.model_parallel=8"], shares=False)
    with pytest.raises(BadInput, match="model_parallel"):
        with_split(config, Split(12, 4, shared=False), "c")


def test_the_row_by_hand():
    """36 s on 4 GPUs are 0.04 GPU-hours; 25 of 100 train GPU-seconds starve; 20 of 100 rollout ones stand."""
    row = _row(tried([30.0, 42.0]), tried([20.0, 30.0], OTHER), 4, 2.5)
    assert row["split"] == "2 : 2"
    assert row["step_s"]["mean"] == 36.0
    assert row["behind_best_s"]["mean"] == 11.0
    assert row["gpu_hours_per_step"]["mean"] == pytest.approx(0.04)
    assert row["usd_per_step"]["mean"] == pytest.approx(0.1)
    assert row["trainer/idle_ratio"] == {"n": 1, "mean": 0.25, "low": None, "high": None}
    assert row["rollouter/idle_ratio"]["mean"] == pytest.approx(0.2)
    assert row["rollout_bubble_share"]["mean"] == pytest.approx(0.35)
    assert (row["staleness_mean"]["mean"], row["staleness_max"]) == (0.5, 2)


def test_a_pool_without_gpu_time_is_not_idle():
    assert share([], "train", ("starved",)) == 0.0


def test_what_pairs_is_told_apart_where_marginal_intervals_overlap():
    """Steps differ by 100 s among each other, the two splits by 1 s with hardly any spread."""
    best = tried([100.0, 200.0, 300.0])
    assert not _ties(tried([101.0, 201.1, 300.9], OTHER), best)
    assert _ties(tried([101.0, 195.0, 305.0], OTHER), best)
    assert not _ties(tried([101.0], OTHER), tried([100.0])), "one pair has no interval"


def test_progress_counts_the_splits():
    words = ["train.steps=1", "train.prompts_per_step=2", "train.samples_per_prompt=2", "cluster.gpus=5"]
    seen = []
    run_splits(load("example:one-step-off", words, shares=False), "c", 0, 1, seen.append)
    assert seen == [1, 2, 3, 4, 5]

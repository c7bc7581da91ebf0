"""Versions of the weights in the KV cache: which wrote a block, and the oldest in what a request attends to."""

import pytest

from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.replica import Replica


def replica_of(**limits):
    limits = EngineLimits(**({
        "max_num_seqs": 4, "max_num_batched_tokens": 64, "block_size": 4, "num_blocks": 64, "max_model_len": 200,
    } | limits))  # fmt: skip
    return Replica(limits, StepCost.affine(limits.max_num_batched_tokens, limits.max_num_seqs))


def cached(replica, slot=0):
    """(first block, end, version) of the segments of a request's content."""
    s = replica.arrays
    found, g = [], s.slot["first_segment"][0, slot]
    while g >= 0:
        found.append((int(s.segment[g]["lo"]), int(s.segment[g]["hi"]), int(s.segment[g]["version"])))
        g = s.segment[g]["content_next"]
    return sorted(found)


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_blocks_begun_before_a_swap_keep_their_version_and_later_ones_carry_the_new(async_scheduling):
    replica = replica_of(async_scheduling=async_scheduling)
    replica.dispatch(0.0, "r", 10, 40)
    replica.run_steps(4)
    assert replica.kv("r")[1] == 0
    replica.swap(replica.now_s, 1, keep_kv=True)
    replica.run_steps(8)
    replica.swap(replica.now_s, 2, keep_kv=True)
    replica.run()
    # 13 tokens of version 0 begin four blocks, 21 of versions 0 and 1 begin six; 49 tokens fill twelve.
    assert cached(replica) == [(0, 4, 0), (4, 6, 1), (6, 12, 2)]


def test_the_oldest_version_in_the_kv_stays_until_it_is_recomputed():
    replica = replica_of()
    replica.dispatch(0.0, "r", 10, 40)
    replica.run_steps(4)
    replica.swap(replica.now_s, 1, keep_kv=True)
    replica.run_steps(8)
    assert replica.kv("r") == (21, 0)
    replica.swap(replica.now_s, 2, keep_kv=False)
    assert replica.kv("r")[0] == 0
    replica.run_steps(2)
    assert replica.kv("r") == (23, 2)


def test_a_hit_on_blocks_of_older_weights_lowers_the_version_of_the_kv():
    replica = replica_of()
    replica.dispatch(0.0, "old", 12, 4)
    replica.run()
    replica.swap(replica.now_s, 3, keep_kv=True)
    replica.dispatch(replica.now_s, "hit", 12, 8, parent="old", shared_tokens=12)
    replica.dispatch(replica.now_s, "own", 12, 8)
    replica.run_steps(2)
    assert replica.results()["hit"].cached_tokens == 8
    assert replica.kv("hit") == (13, 0)
    assert replica.kv("own") == (13, 3)


def test_kv_that_comes_with_a_request_brings_its_version():
    replica = replica_of()
    replica.swap(0.0, 5, keep_kv=True)
    replica.dispatch(0.0, "moved", 30, 20, kv_tokens=14, kv_version=4)
    assert replica.kv("moved") == (14, 4)
    replica.run_steps(1)
    assert replica.kv("moved") == (30, 4)
    replica.run()
    assert replica.kv("moved")[0] == 0
    assert cached(replica) == [(0, 4, 4), (4, 12, 5)]

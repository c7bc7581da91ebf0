"""A static batch with constant step time is list scheduling on m = max_num_seqs identical machines.

A request of N output tokens holds a slot for N steps; the head of the queue takes the first slot that falls free, at
the next step. All bounds below are of worst-case scheduling theory and hold for every instance.
"""

import heapq
import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollsim.simulator.costs import StepCost
from tests.simulator.theory import ample, batch, constant_step, finishes_s

BATCHES = st.lists(st.integers(1, 9), min_size=1, max_size=8)
SLOTS = st.integers(1, 4)


def ends_s(outputs, slots, key=None):
    """Finish times on the replica; with `key` the queue is ordered by it (priority policy), else as given."""
    limits = ample(max_num_seqs=slots, policy="fcfs" if key is None else "priority")
    return finishes_s(
        batch(limits, constant_step(limits), outputs, priorities=None if key is None else [*map(key, outputs)])
    )


def list_schedule(outputs, slots, overhead=0):
    free = [0] * slots
    ends = []
    for n in outputs:
        start = heapq.heappop(free)
        ends.append(start + n)
        heapq.heappush(free, start + n + overhead)
    return ends


def optimum(outputs, slots):
    """Smallest makespan by brute force over all assignments, up to the order of the machines."""

    @cache
    def best(i, loads):
        if i == len(outputs):
            return max(loads)
        return min(
            best(i + 1, tuple(sorted((*loads[:j], loads[j] + outputs[i], *loads[j + 1 :])))) for j in range(slots)
        )

    return best(0, (0,) * slots)


@given(BATCHES, SLOTS)
def test_finish_times_are_those_of_list_scheduling(outputs, slots):
    assert ends_s(outputs, slots).tolist() == list_schedule(outputs, slots)


@given(BATCHES, SLOTS)
def test_asynchronous_scheduling_holds_a_slot_one_call_longer(outputs, slots):
    """Rule 11.3 of the scheduling rules: N tokens hold a slot for N + 1 calls; the last token is out after N.

    Every call costs the same here only if the host bounds it: an empty call costs ``max(host, 0)``.
    """
    limits = ample(max_num_seqs=slots, async_scheduling=True)
    host_bound = StepCost.affine(limits.max_num_batched_tokens, slots, host_s=1.0, overlap=True, base_s=0.0)
    assert finishes_s(batch(limits, host_bound, outputs)).tolist() == list_schedule(outputs, slots, overhead=1)


@given(BATCHES, SLOTS)
def test_makespan_is_within_grahams_bounds(outputs, slots):
    """max(total / m, longest) <= OPT <= makespan <= (2 - 1/m) OPT, and <= total / m + (1 - 1/m) longest.

    Graham, Bounds for certain multiprocessing anomalies, Bell System Technical Journal 45 (1966), for any list.
    """
    makespan, best = ends_s(outputs, slots).max(), optimum(tuple(outputs), slots)
    total, longest = sum(outputs), max(outputs)
    assert max(total / slots, longest) <= best <= makespan
    assert slots * makespan <= (2 * slots - 1) * best
    assert slots * makespan <= total + (slots - 1) * longest


@given(BATCHES, SLOTS)
def test_longest_first_is_within_four_thirds(outputs, slots):
    """LPT: makespan <= (4/3 - 1/(3m)) OPT (Graham, SIAM J. Applied Mathematics 17 (1969), theorem 2)."""
    makespan = ends_s(outputs, slots, key=lambda n: -n).max()
    assert 3 * slots * makespan <= (4 * slots - 1) * optimum(tuple(outputs), slots)
    assert makespan == max(list_schedule(sorted(outputs, reverse=True), slots))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), SLOTS)
def test_shortest_first_has_the_least_mean_completion(outputs, slots):
    """SPT minimizes the sum of completion times on parallel machines, here against every order of the queue.

    Conway, Maxwell & Miller, Theory of Scheduling, 1967, section 4-2.
    """
    best = min(sum(list_schedule(order, slots)) for order in set(itertools.permutations(outputs)))
    assert ends_s(outputs, slots, key=lambda n: n).sum() == best


@pytest.mark.parametrize("slots", [2, 3, 4, 8])
def test_first_come_first_served_meets_grahams_bound_with_the_long_one_last(slots):
    """m (m - 1) responses of 1 token, then one of m tokens: 2m - 1 steps, m are enough (Graham 1966, tight case)."""
    outputs = [1] * (slots * (slots - 1)) + [slots]
    assert ends_s(outputs, slots).max() == 2 * slots - 1
    assert ends_s(outputs, slots, key=lambda n: -n).max() == slots


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_longest_first_meets_its_own_bound(slots):
    """Two each of 2m-1, ..., m+1 tokens and three of m: LPT needs 4m - 1 steps, OPT is 3m (Graham 1969, tight case)."""
    outputs = [n for n in range(2 * slots - 1, slots, -1) for _ in range(2)] + [slots] * 3
    assert ends_s(outputs, slots, key=lambda n: -n).max() == 4 * slots - 1
    assert optimum(tuple(outputs), slots) == 3 * slots


@pytest.mark.parametrize("slots", [16, 256])
def test_bounds_hold_for_a_rollout_of_many_long_tailed_responses(slots):
    """2,000 lognormal lengths (sigma 0.9): the bounds pin the makespan, longest first to within a tenth of OPT.

    OPT is not known; its lower bound max(total / m, longest) stands for it, which only makes the test harder.
    """
    outputs = np.clip(np.random.default_rng(8).lognormal(np.log(2500), 0.9, 2000), 1, 16_384).astype(int).tolist()
    limits = ample(max_num_seqs=slots, max_num_batched_tokens=max(slots, 64))
    fcfs_s = finishes_s(batch(limits, constant_step(limits), outputs)).max()
    limits = ample(max_num_seqs=slots, max_num_batched_tokens=max(slots, 64), policy="priority")
    lpt_s = finishes_s(batch(limits, constant_step(limits), outputs, priorities=[-n for n in outputs])).max()
    longest = max(outputs)
    floor = max(-(-sum(outputs) // slots), longest)
    assert floor <= lpt_s <= fcfs_s <= sum(outputs) / slots + (1 - 1 / slots) * longest
    assert lpt_s <= 1.1 * floor

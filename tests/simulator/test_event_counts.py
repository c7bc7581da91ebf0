"""The kernel's work is batch changes: event counts are exact, and do not grow with lengths, steps or idle time."""

import dataclasses

import numpy as np
import pytest

from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.replay import Replayed, replay
from rollsim.traces.requests import RequestTrace

LIMITS = EngineLimits(
    max_num_seqs=64, max_num_batched_tokens=4096, block_size=16, num_blocks=1_000_000, max_model_len=1_000_000
)
COST = StepCost.affine(4096, 64, host_s=1e-3, base_s=5e-3, token_s=1e-5, kv_read_s=1e-8)


def batch(output: np.ndarray, prompt: int = 512, group: int = 8) -> RequestTrace:
    n = len(output)
    zeros = np.zeros(n, np.int64)
    index = np.arange(n)
    return RequestTrace(
        "made", None, zeros * 1.0, np.full(n, prompt), output, index // group, zeros, index, "row", "", ()
    )


def run(output: np.ndarray, **limits: object) -> Replayed:
    return replay(batch(output), dataclasses.replace(LIMITS, **limits), COST)


def distinct_lengths(n: int, stride: int) -> np.ndarray:
    return 100 + stride * np.random.default_rng(0).permutation(n)


@pytest.mark.parametrize(("asynchronous", "per_end"), [(False, 2), (True, 3)])
@pytest.mark.parametrize("longer", [1, 10, 100])
def test_a_queue_costs_a_few_events_per_end_however_long_responses_are(
    asynchronous: bool, per_end: int, longer: int
) -> None:
    """A leap to the end and a step that admits the next; asynchronous: its slot is free only a call later.

    The last 64 let nobody in, ends at one step share their events, and the first steps prefill.
    """
    done = run(longer * distinct_lengths(256, 7), async_scheduling=asynchronous)
    assert 256 < done.events <= per_end * 256
    assert done.steps > 5000 * longer


def test_counts_are_pinned() -> None:
    """Exact, on any machine: a change here is a change of the work that the kernel does."""
    assert [run(longer * distinct_lengths(256, 7)).events for longer in (1, 10, 100)] == [436, 443, 443]


def test_a_batch_that_fits_costs_one_event_per_end_and_one_per_prefill_step() -> None:
    done = run(distinct_lengths(64, 3))
    prefill_steps = -(-8 * 512 // 4096)
    assert done.events == 64 + prefill_steps + 1


def test_equal_lengths_end_together() -> None:
    done = run(np.full(64, 50_000))
    assert done.events <= 5


def test_events_are_deterministic() -> None:
    lengths = distinct_lengths(200, 5)
    assert {run(lengths, num_blocks=4000).events for _ in range(3)} == {run(lengths, num_blocks=4000).events}

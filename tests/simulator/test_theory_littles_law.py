"""Little's law L = lambda W as a finite-horizon identity: the engine's counters against its times of each request.

The integral of the number present over [0, T] equals the sum of the times that the requests present spent there, for
every path that starts and ends empty (Little 1961; Stidham 1974, "A last word on L = lambda W"; no randomness is
needed). The counters and the per-request times are kept by different code, so the identity is a check of both.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.replica import Replica
from tests.simulator.theory import batch, preemptions


@st.composite
def starved_worlds(draw):
    """An engine whose pool holds one to three of the longest requests, and requests as (arrival, prompt, output)."""
    block_size = draw(st.sampled_from([1, 4, 16]))
    requests = draw(
        st.lists(st.tuples(st.floats(0, 4), st.integers(1, 20), st.integers(1, 40)), min_size=1, max_size=14)
    )
    longest = max(prompt + output for _, prompt, output in requests)
    blocks = -(-longest // block_size)
    limits = EngineLimits(
        max_num_seqs=draw(st.integers(1, 8)),
        max_num_batched_tokens=draw(st.integers(8, 40)),
        block_size=block_size,
        num_blocks=draw(st.integers(blocks, 3 * blocks)),
        max_model_len=64,
        prefix_caching=draw(st.booleans()),
        async_scheduling=draw(st.booleans()),
    )
    cost = StepCost.affine(
        limits.max_num_batched_tokens,
        limits.max_num_seqs,
        host_s=draw(st.floats(0, 0.02)),
        overlap=limits.async_scheduling,
        base_s=draw(st.floats(0.01, 0.05)),
        token_s=1e-3,
        kv_read_s=1e-4,
        prefill_attn_s=1e-5,
    )
    return limits, cost, sorted(requests)


class Counted:
    """A replica stepped one step at a time, which integrates its counters over time."""

    def __init__(self, limits, cost):
        self.replica = Replica(limits, cost, log_spans=True)
        self.present_s = self.running_s = 0.0

    def step(self):
        """One step; its counts are those after scheduling, less what an asynchronous call then lets go."""
        before, start_s = self.replica.arrays.engine[0].copy(), self.replica.now_s
        self.replica.run_steps(1)
        engine, rank = self.replica.arrays.engine[0], self.replica.arrays.rank[0]
        late = self.replica.limits.async_scheduling
        duration_s = self.replica.now_s - start_s
        self.present_s += duration_s * int((engine if late else before)["n_unfinished"])
        self.running_s += duration_s * int(rank["n_running" if late else "running_peak"])

    def until(self, t_s):
        while self.replica.now_s < t_s and self.replica.arrays.engine[0]["n_unfinished"] > 0:
            self.step()


@settings(max_examples=150)
@given(starved_worlds())
def test_integrated_counts_equal_summed_times(world):
    """Over the system: int N dt = sum (finish - entry). Over the running set: int R dt = sum of the spans.

    Entry is the step boundary at which a request joins the queue. With preemption a request runs in several spans;
    the rest of its time is the time in `waiting`, so Little's law holds there, too.
    """
    limits, cost, requests = world
    counted = Counted(limits, cost)
    entry_s = []
    for i, (t_s, prompt, output) in enumerate(requests):
        counted.until(t_s)
        counted.replica.dispatch(t_s, i, prompt, output)
        assert counted.replica.now_s >= t_s
        entry_s.append(counted.replica.now_s)
    counted.until(math.inf)
    results = counted.replica.results()
    assert all(result.reason == "length" for result in results.values())
    sojourn_s = sum(results[i].finish_s - entry_s[i] for i in results)
    assert counted.present_s == pytest.approx(sojourn_s, rel=1e-9, abs=1e-12)
    arrays = counted.replica.arrays
    spans = arrays.span[: int(arrays.engine[0]["span_n"])]
    assert counted.running_s == pytest.approx(float((spans["t1_s"] - spans["t0_s"]).sum()), rel=1e-9, abs=1e-12)


def test_gauges_of_a_starved_batch_integrate_to_its_finish_times():
    """L T = sum of W for the gauge table of one compiled run: rows hold between batch changes, as nothing moves there.

    64 requests in a pool for about 12: the run must preempt for the check to mean anything.
    """
    limits = EngineLimits(16, 64, 16, 400, 4096, prefix_caching=False)
    cost = StepCost.affine(64, 16, host_s=0.001, base_s=0.01, token_s=1e-4, kv_read_s=1e-7)
    outputs = np.random.default_rng(7).integers(1, 800, 64)
    replica = batch(limits, cost, outputs, prompt_tokens=100)
    assert preemptions(replica) > 0
    engine = replica.arrays.engine[0]
    assert engine["gauge_dt_s"] == 0, "every batch change must have its row"
    rows = replica.arrays.gauge[: int(engine["gauge_n"])]
    present = np.concatenate([[len(outputs)], (rows["running"] + rows["waiting"])[:-1]])
    present_s = float((present * np.diff(rows["t_s"], prepend=0.0)).sum())
    assert present_s == pytest.approx(sum(result.finish_s for result in replica.results().values()), rel=1e-12)

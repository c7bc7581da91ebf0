"""The kernel's closed forms against plain sums and searches, and k steps at once against k single steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollsim.simulator.costs import StepCost
from rollsim.simulator.kernel import cost as kernel_cost
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.replica import Replica
from tests.simulator.theory import ample, constant_step

# Multiples of 1/64 below 2^20: every sum below is exact in floating point, so equality is asked for.
SECONDS = st.integers(0, 1 << 20).map(lambda i: i / 64)
SLOPES = st.integers(0, 1 << 12).map(lambda i: i / 64)
# Four lockstep ranks and the host make five lines.
SCRATCH = Replica(ample(lockstep_ranks=4), StepCost.affine(4 * 64, 64)).arrays
LINES = st.lists(st.tuples(SECONDS, SLOPES), min_size=1, max_size=5)


def with_lines(lines):
    SCRATCH.lines[: len(lines)] = lines
    return SCRATCH


def summed(lines, k):
    return sum(max(a + b * j for a, b in lines) for j in range(k))


@given(LINES, st.integers(0, 300))
def test_envelope_is_the_sum_of_the_largest_line(lines, k):
    """sum_{j<k} max_i (a_i + b_i j), a piecewise arithmetic series under the upper envelope of the lines."""
    assert kernel_cost.envelope_s(with_lines(lines), 0, len(lines), k) == summed(lines, k)


@given(LINES, st.integers(0, 4), st.integers(1, 200))
def test_envelope_of_a_part_of_the_lines(lines, first, k):
    first = min(first, len(lines) - 1)
    assert kernel_cost.envelope_s(with_lines(lines), first, len(lines), k) == summed(lines[first:], k)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1e-2)), min_size=1, max_size=5),
    st.integers(1, 2000),
)
def test_envelope_of_any_lines_to_rounding(lines, k):
    given_s = kernel_cost.envelope_s(with_lines(lines), 0, len(lines), k)
    assert given_s == pytest.approx(summed(lines, k), rel=1e-12, abs=1e-15)


@given(LINES, st.integers(1, 200), st.integers(0, 220), st.integers(-1, 1))
def test_steps_until_is_the_linear_search(lines, k, near, nudge):
    """Smallest n in 1..k with sum >= duration, else k; durations lie on, just below and just above a boundary."""
    duration_s = summed(lines, near) + nudge / 128
    expected = next((n for n in range(1, k) if summed(lines, n) >= duration_s), k)
    assert kernel_cost.steps_until(with_lines(lines), len(lines), k, duration_s) == expected


def test_k_steps_cost_the_designs_formula():
    """k (host + dense[B]) + kv_read[B] (k U0 + R k (k - 1) / 2), DESIGN section 3, by hand for one batch.

    Three requests are prefilled in one step. The shortest then needs k = 499 decode steps with B = 3 and R = 3; the
    first of them reads U0 = 101 + 18 + 2048 KV tokens (each sequence reads the token it feeds, too).
    """
    prompts, outputs = [100, 17, 2047], [500, 900, 501]
    limits = ample(max_num_seqs=3, max_num_batched_tokens=4096)
    tables = {name: np.linspace(0, top, 4097) ** 1.5 for name, top in (("decode_s", 0.3), ("mixed_s", 0.7))}
    plain = {"context_knots": np.zeros(1), "context_slopes": np.ones(1), "context_offsets": np.zeros(1)}
    kv_read_s = np.array([0.0, 3e-8, 2e-8, 1.5e-8])
    cost = StepCost(host_s=2e-3, overlap=False, kv_read_s=kv_read_s, prefill_attn_s=1e-9, **tables, **plain)
    replica = Replica(limits, cost)
    for i, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        replica.dispatch(0.0, i, prompt, output)
    replica.run()
    first_s = 2e-3 + cost.mixed_s[2164] + 1e-9 * (100**2 + 17**2 + 2047**2) / 2
    k, U0, R = 499, 101 + 18 + 2048, 3
    decode_s = k * (2e-3 + cost.decode_s[3]) + 1.5e-8 * (k * U0 + R * k * (k - 1) / 2)
    # One more step of B = 3 brings the third to its end, 399 of B = 1 the second.
    then_s = 2e-3 + cost.decode_s[2] + 2e-8 * ((17 + 500) + (2047 + 500))
    k, U0 = 399, 17 + 501
    last_s = k * (2e-3 + cost.decode_s[1]) + 3e-8 * (k * U0 + k * (k - 1) / 2)
    results = replica.results()
    assert results[0].first_token_s == pytest.approx(first_s, rel=1e-12)
    assert results[0].finish_s == pytest.approx(first_s + decode_s, rel=1e-12)
    assert results[2].finish_s == pytest.approx(first_s + decode_s + then_s, rel=1e-12)
    assert results[1].finish_s == pytest.approx(first_s + decode_s + then_s + last_s, rel=1e-12)
    assert replica.arrays.engine[0]["events"] == 4, "one walk and three jumps, whatever the lengths"


def test_k_steps_with_rates_cost_the_designs_formula():
    """The same with r = (1, 1.5, 2.25) tokens per step: R = 4.75, and the reads are real valued between tokens."""
    limits = ample(max_num_seqs=3, max_num_batched_tokens=128)
    cost = StepCost.affine(128, 3, host_s=1e-3, base_s=5e-3, kv_read_s=1e-6)
    replica = Replica(limits, cost)
    for i, (output, rate) in enumerate([(301, 1.0), (5000, 1.5), (5000, 2.25)]):
        replica.dispatch(0.0, i, 10 * (i + 1), output, rate=rate)
    replica.run()
    k, U0, R = 300, 11 + 21 + 31, 4.75
    expected_s = 6e-3 + k * 6e-3 + 1e-6 * (k * U0 + R * k * (k - 1) / 2)
    assert replica.results()[0].finish_s == pytest.approx(expected_s, rel=1e-12)


@st.composite
def worlds(draw):
    """Limits, an affine cost of any mode and requests (arrival, prompt, output, rate); pools may starve."""
    requests = draw(
        st.lists(
            st.tuples(st.floats(0, 3), st.integers(1, 30), st.integers(1, 60), st.sampled_from([1.0, 1.0, 1.5, 2.7])),
            min_size=1,
            max_size=10,
        )
    )
    longest = max(prompt + output for _, prompt, output, _ in requests)
    limits = EngineLimits(
        max_num_seqs=draw(st.integers(1, 6)),
        max_num_batched_tokens=draw(st.integers(6, 40)),
        block_size=4,
        num_blocks=draw(st.integers(longest // 4 + 2, longest)),
        max_model_len=128,
        prefix_caching=draw(st.booleans()),
        async_scheduling=draw(st.booleans()),
    )
    fields = ("host_s", "base_s", "token_s", "kv_read_s", "prefill_attn_s")
    tops = (0.05, 0.05, 1e-3, 1e-3, 1e-5)
    coefficients = {name: draw(st.floats(0, top)) for name, top in zip(fields, tops, strict=True)}
    coefficients["base_s"] += 1e-3
    overlap = draw(st.booleans())
    cost = StepCost.affine(limits.max_num_batched_tokens, limits.max_num_seqs, overlap=overlap, **coefficients)
    return limits, cost, sorted(requests)


def served(limits, cost, requests, *, one_by_one):
    replica = Replica(limits, cost)

    def single_steps(until_s):
        while replica.now_s < until_s and replica.arrays.engine[0]["n_unfinished"] > 0:
            replica.run_steps(1)

    for i, (t_s, prompt, output, rate) in enumerate(requests):
        if one_by_one:
            single_steps(t_s)
        replica.dispatch(t_s, i, prompt, output, rate=rate)
    if one_by_one:
        single_steps(np.inf)
    else:
        replica.run()
    return replica


@settings(max_examples=150)
@given(worlds())
def test_k_steps_at_once_equal_k_single_steps(world):
    """Counts are equal, times to 1e-9: only the order of floating-point sums differs. host ⊕ gpu is + or max."""
    jumped, walked = served(*world, one_by_one=False), served(*world, one_by_one=True)
    for one, other in zip(jumped.results().values(), walked.results().values(), strict=True):
        assert one.first_token_s == pytest.approx(other.first_token_s, rel=1e-9)
        assert one.finish_s == pytest.approx(other.finish_s, rel=1e-9)
        for name in ("output_tokens", "preemptions", "reason", "cached_tokens", "recomputed_tokens"):
            assert getattr(one, name) == getattr(other, name)
    ours, theirs = jumped.arrays.engine[0], walked.arrays.engine[0]
    assert ours["step"] == theirs["step"]
    for account in ("decode_time_s", "prefill_time_s", "recompute_time_s", "host_time_s"):
        assert ours[account] == pytest.approx(theirs[account], rel=1e-9, abs=1e-9)


def test_jumps_are_fewer_than_steps():
    """The check above compares two different ways: 10,000 steps are one prefill and one jump."""
    limits = ample()
    replica = Replica(limits, constant_step(limits))
    replica.dispatch(0.0, "only", 1, 10_000)
    replica.run()
    assert (replica.arrays.engine[0]["step"], replica.arrays.engine[0]["events"]) == (10_000, 2)

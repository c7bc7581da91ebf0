"""Constant step time and slots for all: a pure delay, the infinite server M/G/inf."""

import numpy as np
import pytest
from scipy import stats

from rollsim.simulator.replica import Replica
from tests.simulator.theory import ample, constant_step, finishes_s, stream

LIMITS = ample(max_num_seqs=128, max_num_batched_tokens=128)
STEP_S = 1e-3
MEAN_TOKENS = 1000


def fixed_lengths(rng, n):
    return np.full(n, MEAN_TOKENS)


def even_lengths(rng, n):
    return rng.integers(1, 2 * MEAN_TOKENS, n)


def test_nobody_delays_anybody():
    """Response = N c plus the rest of the step in flight at arrival, request by request; no queueing at any load."""
    rng = np.random.default_rng(5)
    arrivals_s, outputs = np.cumsum(rng.exponential(0.05, 4000)), even_lengths(rng, 4000)
    response_s = finishes_s(stream(LIMITS, constant_step(LIMITS, STEP_S), arrivals_s, outputs)) - arrivals_s
    wait_s = response_s - outputs * STEP_S
    assert wait_s.min() >= -1e-9
    assert wait_s.max() < STEP_S + 1e-9
    # Arrivals are uniform over the step that they fall into (but the few that find the engine idle, P = exp(-20)).
    half_width_s = 4 * STEP_S / np.sqrt(12 * 4000)
    assert abs(wait_s.mean() - STEP_S / 2) <= half_width_s


@pytest.mark.parametrize("lengths", [fixed_lengths, even_lengths])
def test_number_in_system_is_poisson_for_any_length_law(lengths):
    """M/G/inf: the number in system is Poisson with mean lambda E[S], whatever the law of S.

    Takacs, Introduction to the Theory of Queues, 1962, chapter 3 (telephone traffic). Looked
    at every 2.5 s, longer than any request lives, the numbers are independent. With E[S] = 1 s, and the wait for the
    next step counted, the mean is lambda (E[S] + c / 2). Mean within 4 standard errors; dispersion and the
    distribution (chi-square) at a level of 1e-3.
    """
    rng = np.random.default_rng(6)
    looks, every_s, rate_per_s = 300, 2.5, 12.0
    n = int(1.2 * looks * every_s * rate_per_s)
    arrivals_s, outputs = np.cumsum(rng.exponential(1 / rate_per_s, n)), lengths(rng, n)
    replica = Replica(LIMITS, constant_step(LIMITS, STEP_S))
    counts, i = [], 0
    for t_s in every_s * np.arange(1, looks + 1):
        while arrivals_s[i] < t_s:
            replica.dispatch(float(arrivals_s[i]), i, 1, int(outputs[i]))
            i += 1
        replica.advance(t_s)
        counts.append(int(replica.arrays.engine[0]["n_unfinished"]))
    mean = rate_per_s * (outputs.mean() * STEP_S + STEP_S / 2)
    counts = np.array(counts)
    assert abs(counts.mean() - mean) <= 4 * np.sqrt(mean / looks)
    dispersion = ((counts - counts.mean()) ** 2).sum() / counts.mean()
    assert 1e-3 < stats.chi2.cdf(dispersion, looks - 1) < 1 - 1e-3
    edges = np.array([-1, *stats.poisson.ppf(np.arange(1, 10) / 10, mean), np.inf])
    expected = looks * np.diff(stats.poisson.cdf(edges, mean))
    observed = np.histogram(counts, edges + 0.5)[0]
    assert stats.chisquare(observed, expected).pvalue > 1e-3

"""Single-server limits: one slot is M/G/1 (first come first served), steps that cost c per token share the processor.

Samples and seeds are fixed. A mean must lie within 4 standard errors (regenerative, `theory.cycle_mean`) of the
formula; a bound on the standard error says how small a fault each test sees. Sharper are the checks request by request,
against Lindley's recursion and fluid processor sharing, on the same samples.
"""

import heapq

import numpy as np
import pytest

from rollsim.simulator.costs import StepCost
from tests.simulator.theory import ample, batch, constant_step, cycle_mean, cycle_starts, finishes_s, stream

N_REQUESTS = 20_000
SIGMAS = 4.0

ONE_SLOT = ample(max_num_seqs=1, max_num_batched_tokens=4)
SHARED = ample(max_num_seqs=128, max_num_batched_tokens=128)


def poisson_arrivals(rng, rate_per_s, n=N_REQUESTS):
    return np.cumsum(rng.exponential(1 / rate_per_s, n))


def assert_mean(values, starts, expected, *, relative_error, slack=0.0):
    mean, error = cycle_mean(values, starts)
    assert error <= relative_error * expected, "the sample is too small to test anything"
    assert abs(mean - expected) <= SIGMAS * error + slack


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_slot_waits_as_pollaczek_khinchine(load):
    """One slot is M/G/1: E[W] = lambda E[S^2] / (2 (1 - rho)).

    Kleinrock, Queueing Systems I, 1975, section 5.7. Service is N steps of c = 1 s with N geometric: E[S] = c/p and
    E[S^2] = c^2 (2 - p) / p^2 exactly, no continuous limit is taken. An arrival at an idle engine starts a step at
    once, at a busy one it is served after an end, which is a step boundary: the queue is M/G/1 exactly. Hence also
    Lindley's recursion W' = max(0, W + S - A) for every single request (ibid., section 8.1).
    """
    rng = np.random.default_rng(1)
    p = 0.2
    arrivals_s, outputs = poisson_arrivals(rng, load * p), rng.geometric(p, N_REQUESTS)
    finish_s = finishes_s(stream(ONE_SLOT, constant_step(ONE_SLOT), arrivals_s, outputs))

    wait_s = finish_s - outputs - arrivals_s
    lindley_s = np.zeros(N_REQUESTS)
    for i, gap_s in enumerate(np.diff(arrivals_s)):
        lindley_s[i + 1] = max(0.0, lindley_s[i] + outputs[i] - gap_s)
    np.testing.assert_allclose(wait_s, lindley_s, atol=1e-6)

    expected_s = load * p * (2 - p) / p**2 / (2 * (1 - load))
    assert_mean(wait_s, cycle_starts(arrivals_s, finish_s), expected_s, relative_error=0.1)


def test_one_slot_with_fixed_lengths_waits_as_m_d_1():
    """M/D/1: E[W] = rho E[S] / (2 (1 - rho)), half of M/M/1 (Kleinrock I, section 5.7).

    Prompts of one token and 8 output tokens take 8 steps of 0.5 s.
    """
    load, service_s = 0.7, 4.0
    arrivals_s = poisson_arrivals(np.random.default_rng(2), load / service_s)
    finish_s = finishes_s(stream(ONE_SLOT, constant_step(ONE_SLOT, 0.5), arrivals_s, np.full(N_REQUESTS, 8)))
    wait_s = finish_s - service_s - arrivals_s
    expected_s = load * service_s / (2 * (1 - load))
    assert_mean(wait_s, cycle_starts(arrivals_s, finish_s), expected_s, relative_error=0.06)


def test_many_short_steps_per_request_are_m_m_1():
    """M/M/1 in the limit p -> 0: sojourn times are exponential with rate mu - lambda, and P(wait) = rho.

    Kleinrock I, sections 3.2 and 5.7. With p = 1/1000 the squared coefficient of variation of service is 1 - p, so
    Pollaczek-Khinchine is below M/M/1 by p / 2 of the wait: 0.05 %, the slack.
    """
    rng = np.random.default_rng(3)
    load, p = 0.6, 1e-3
    arrivals_s, outputs = poisson_arrivals(rng, load), rng.geometric(p, N_REQUESTS)
    finish_s = finishes_s(stream(ONE_SLOT, constant_step(ONE_SLOT, p), arrivals_s, outputs))
    sojourn_s, starts = finish_s - arrivals_s, cycle_starts(arrivals_s, finish_s)
    mean_s = 1 / (1 - load)
    assert_mean(sojourn_s, starts, mean_s, relative_error=0.05, slack=1e-3 * mean_s)
    for multiple in (0.5, 1.0, 2.0):
        late = (sojourn_s > multiple * mean_s).astype(float)
        assert_mean(late, starts, np.exp(-multiple), relative_error=0.1, slack=1e-3)
    waits = (sojourn_s - outputs * p > 1e-9).astype(float)
    assert_mean(waits, starts, load, relative_error=0.02)


def fixed_lengths(_rng):
    return np.full(N_REQUESTS, 2000)


def geometric_lengths(rng):
    return rng.geometric(1 / 2000, N_REQUESTS)


def two_kinds_of_lengths(rng):
    """Nine tenths short, one tenth long, mean 2000, squared coefficient of variation 5.5."""
    return rng.geometric(np.where(rng.random(N_REQUESTS) < 0.9, 1 / 1000, 1 / 11_000))


@pytest.mark.parametrize("lengths", [fixed_lengths, geometric_lengths, two_kinds_of_lengths])
def test_cost_per_token_is_processor_sharing_and_insensitive(lengths):
    """M/G/1-PS: E[T] = E[S] / (1 - rho) for any length law; a request of size x takes x / (1 - rho) on average.

    Kleinrock, Queueing Systems II, 1976, chapter 4 (round robin). A step of n requests lasts c n, each gets a token:
    an egalitarian round robin with quantum c = E[S] / 2000. Response times differ from the fluid limit by at most
    the round in which a request arrives and the one in which it ends, 2 c times the largest batch: the slack. First
    come first served would take 5.9 s instead of 2.5 s with the third law, and 1.75 s with the first.
    """
    rng = np.random.default_rng(4)
    load, token_s = 0.6, 1 / 2000
    arrivals_s, outputs = poisson_arrivals(rng, load), lengths(rng)
    cost = StepCost.affine(SHARED.max_num_batched_tokens, SHARED.max_num_seqs, base_s=0.0, token_s=token_s)
    finish_s = finishes_s(stream(SHARED, cost, arrivals_s, outputs))
    starts, sojourn_s = cycle_starts(arrivals_s, finish_s), finish_s - arrivals_s
    largest = most_at_once(arrivals_s, finish_s)
    assert largest < SHARED.max_num_seqs
    slack_s = 2 * token_s * largest
    fluid_s = processor_sharing_s(arrivals_s, outputs * token_s)
    np.testing.assert_allclose(finish_s, fluid_s, rtol=0, atol=slack_s)
    assert_mean(sojourn_s, starts, 1 / (1 - load), relative_error=0.06, slack=slack_s)
    # By size: E[T - x / (1 - rho) | x] = 0, over the shorter and over the longer half of the requests.
    excess_s = sojourn_s - outputs * token_s / (1 - load)
    shorter = outputs <= np.median(outputs)
    for part in [shorter] if shorter.all() else [shorter, ~shorter]:
        mean_s, error_s = cycle_mean(excess_s * part, starts)
        assert error_s <= 0.1
        assert abs(mean_s) <= SIGMAS * error_s + slack_s


def processor_sharing_s(arrivals_s, sizes_s):
    """Finish times under fluid processor sharing: attained service v grows by dt / n for all n requests alike."""
    attained_s, now_s, ends, finish_s = 0.0, 0.0, [], np.empty(len(arrivals_s))
    for i, (t_s, size_s) in enumerate(zip([*arrivals_s, np.inf], [*sizes_s, 0.0], strict=True)):
        while ends and now_s + (ends[0][0] - attained_s) * len(ends) <= t_s:
            end_s, first = ends[0]
            now_s += (end_s - attained_s) * len(ends)
            attained_s, finish_s[first] = end_s, now_s
            heapq.heappop(ends)
        if ends:
            attained_s += (t_s - now_s) / len(ends)
        now_s = t_s
        heapq.heappush(ends, (attained_s + size_s, i))
    return finish_s


def most_at_once(arrivals_s, finish_s):
    order = np.argsort(np.concatenate([finish_s, arrivals_s]), kind="stable")
    return int(np.cumsum(np.where(order < len(finish_s), -1, 1)).max())


@pytest.mark.parametrize("outputs", [[3, 1, 4, 1, 5, 9, 2, 6], [7] * 5, [1], [1000, 1, 10, 100]])
def test_static_batch_shares_the_processor_exactly(outputs):
    """Egalitarian sharing of a static batch: request i ends at c sum_j min(N_j, N_i).

    When it ends, each other request has had as many rounds, or all of its own (Kleinrock II, chapter 4).
    """
    token_s = 0.25
    cost = StepCost.affine(SHARED.max_num_batched_tokens, SHARED.max_num_seqs, base_s=0.0, token_s=token_s)
    replica = batch(SHARED, cost, outputs)
    expected_s = [token_s * sum(min(n, other) for other in outputs) for n in outputs]
    assert finishes_s(replica).tolist() == expected_s
    assert {result.first_token_s for result in replica.results().values()} == {token_s * len(outputs)}

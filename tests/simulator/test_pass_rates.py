"""Pass rates and rewards: their distribution, and how they hang together with lengths."""

import math

import numpy as np
import pytest
from scipy.stats import beta, kstest, norm

from rollsim.simulator.length_law import PassRate
from rollsim.simulator.pass_rates import PassRates

RNG = np.random.default_rng(11)
COUNT = 200_000
A, B = RNG.standard_normal(COUNT), RNG.standard_normal(COUNT)


def test_rates_are_beta_with_the_ends_apart():
    rates = PassRates(PassRate(never_share=0.2, always_share=0.1, a=2.0, b=3.0, prompt_correlation=-0.6)).of_prompt(
        A, B
    )
    assert (rates == 0).mean() == pytest.approx(0.2, abs=0.004)
    assert (rates == 1).mean() == pytest.approx(0.1, abs=0.003)
    inside = rates[(rates > 0) & (rates < 1)]
    assert kstest(inside[:20_000], beta(2, 3).cdf).pvalue > 0.01
    # E = always + middle * a / (a + b).
    assert rates.mean() == pytest.approx(0.1 + 0.7 * 0.4, abs=0.003)


@pytest.mark.parametrize("correlation", [-1.0, -0.5, 0.0, 0.8])
def test_correlation_of_the_scores_of_rate_and_length(correlation):
    # Beta(1, 1) is uniform: the rate is Phi of its score, and Spearman's rho of a Gaussian copula 6/pi asin(r/2).
    rates = PassRates(PassRate(a=1, b=1, prompt_correlation=correlation)).of_prompt(A, B)
    ranks = [values.argsort().argsort() for values in (rates, A)]
    assert np.corrcoef(*ranks)[0, 1] == pytest.approx(6 / math.pi * math.asin(correlation / 2), abs=0.01)


@pytest.mark.parametrize("correlation", [-1.0, -0.5, 0.0, 0.5])
def test_the_chance_of_a_reward_is_the_rate_whatever_the_correlation(correlation):
    pass_rates = PassRates(PassRate(a=1, b=1, sample_correlation=correlation))
    for rate in (0.0, 0.1, 0.6, 1.0):
        found = pass_rates.rewards(np.full(COUNT, rate), A, B, np.zeros(COUNT, bool))
        assert found.mean() == pytest.approx(rate, abs=0.005)
        if 0 < rate < 1:
            # Inverse Mills ratio: below 0, the right ones are the short ones.
            expected = correlation * norm.pdf(norm.ppf(rate)) / rate
            assert A[found == 1].mean() == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("fails", [True, False])
def test_what_is_cut_is_wrong_if_the_law_says_so(fails):
    pass_rates = PassRates(PassRate(a=1, b=1, truncated_fails=fails))
    cut = np.arange(COUNT) % 4 == 0
    found = pass_rates.rewards(np.full(COUNT, 0.8), A, B, cut)
    assert found[cut].mean() == pytest.approx(0.0 if fails else 0.8, abs=0.006)
    assert found[~cut].mean() == pytest.approx(0.8, abs=0.005)

"""The body of a length law against closed forms, root finding and numeric integration."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import kstest

from rollsim.simulator.length_body import Body
from rollsim.simulator.length_law import Lognormal

ONE = (Lognormal(weight=1.0, median_tokens=500, sigma=0.8),)
TWO = (Lognormal(weight=0.3, median_tokens=300, sigma=0.3), Lognormal(weight=0.7, median_tokens=2000, sigma=1.2))
SCORES = np.array([-4.0, -1.5, 0.0, 0.7, 2.2, 4.0])


def test_one_lognormal_is_in_closed_form():
    body = Body(ONE)
    assert body.log_quantile(SCORES) == pytest.approx(math.log(500) + 0.8 * SCORES, abs=1e-9)
    assert body.score(math.log(500) + 0.8 * SCORES) == pytest.approx(SCORES, abs=1e-12)
    assert body.distribution(math.log(500 * math.exp(0.8))) == pytest.approx(ndtr(1.0))


def test_quantiles_of_a_mixture_are_the_roots_of_its_distribution():
    body = Body(TWO)
    for score in SCORES:
        found = body.log_quantile(score)
        exact = brentq(lambda x, score=score: body.score(x) - score, 0, 15, xtol=1e-13)
        assert found == pytest.approx(exact, abs=2e-6)


def test_runaways_are_infinite_and_in_the_survival():
    body = Body(TWO, runaway_share=0.1)
    plain = Body(TWO)
    x = math.log(900)
    assert body.survival(x) == pytest.approx(0.1 + 0.9 * plain.survival(x))
    assert body.distribution(x) + body.survival(x) == pytest.approx(1.0)
    edge = -ndtri(0.1)
    assert np.isinf(body.log_quantile([edge + 1e-6, 8.0])).all()
    assert np.isfinite(body.log_quantile(edge - 1e-6))
    # The median of all is the P(0.5/0.9) of those that end.
    assert body.log_quantile(0.0) == pytest.approx(plain.log_quantile(ndtri(0.5 / 0.9)), abs=1e-5)


@pytest.mark.parametrize("parts", [ONE, TWO])
@pytest.mark.parametrize("runaway", [0.0, 0.05])
def test_mean_below_a_cap_is_the_integral_of_the_survival(parts, runaway):
    body, cap = Body(parts, runaway), 3000.0
    integral, _ = quad(lambda tokens: float(body.survival(math.log(tokens))), 1e-9, cap, limit=200)
    assert body.mean(cap) == pytest.approx(integral, rel=1e-6)


def test_draws_follow_the_distribution():
    body = Body(TWO)
    scores = np.random.default_rng(0).standard_normal(20_000)
    assert kstest(body.log_quantile(scores), body.distribution).pvalue > 0.01
    assert kstest(body.log_quantile(scores) + 0.05, body.distribution).pvalue < 1e-6, "a shift by 5 % is seen"

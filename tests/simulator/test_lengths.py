"""Lengths under a law: cap, censoring, the prompt's share, drift and the longest of many, against theory."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from rollsim.simulator.length_law import Drift, LengthLaw, Lognormal, PromptLength
from rollsim.simulator.lengths import Lengths

RNG = np.random.default_rng(7)
COUNT = 200_000


def law(**changed) -> LengthLaw:
    """One lognormal with a median of 1,000 and sigma 1, cut at 8,000."""
    plain = {
        "schema_version": 1,
        "name": "plain",
        "cap_tokens": 8000,
        "body": (Lognormal(weight=1.0, median_tokens=1000, sigma=1.0),),
        "prompt_share": 0.5,
        "prompt": PromptLength(median_tokens=100, sigma=0.5, max_tokens=1000),
    }
    return LengthLaw.model_validate(plain | changed)


def test_a_length_is_the_quantile_of_its_score():
    # Score 1 of a prompt's share of 0.36 is 0.6 * a + 0.8 * e.
    lengths = Lengths(law(prompt_share=0.36))
    assert lengths.score(1.0, 0.5) == pytest.approx(0.6 + 0.4)
    assert lengths.draw(1.0, 0.5).tokens == round(1000 * math.e)
    assert lengths.quantile(0.5) == pytest.approx(1000)
    assert lengths.quantile(ndtr(1.0)) == pytest.approx(1000 * math.e)
    assert lengths.share_up_to(1000 * math.e) == pytest.approx(ndtr(1.0))


def test_what_is_at_the_cap_is_censored_and_nothing_else():
    lengths = Lengths(law(runaway_share=0.1))
    # A tenth never ends; of the others, those above ln 8 standard deviations.
    mass = 0.1 + 0.9 * ndtr(-math.log(8))
    assert lengths.cap_share() == pytest.approx(mass)
    drawn = lengths.at_score(RNG.standard_normal(COUNT))
    assert drawn.truncated.mean() == pytest.approx(mass, abs=4 * math.sqrt(mass / COUNT))
    assert (drawn.tokens[drawn.truncated] == 8000).all()
    assert drawn.tokens[~drawn.truncated].max() <= 8000
    assert lengths.share_up_to([7999.0, 8000.0]) == pytest.approx([1 - mass, 1.0], abs=1e-3)
    assert lengths.quantile(0.99) == 8000
    assert drawn.tokens.mean() == pytest.approx(lengths.mean(), rel=0.01)
    assert Lengths(law(body=(Lognormal(weight=1.0, median_tokens=0.01, sigma=0.1),))).draw(0, 0).tokens == 1


def test_another_cap_leaves_all_below_it_as_it_was():
    score = RNG.standard_normal(5000)
    usual, lower = Lengths(law()).at_score(score), Lengths(law(), cap_tokens=2000).at_score(score)
    assert (lower.tokens == np.minimum(usual.tokens, 2000)).all()
    assert lower.truncated.sum() > usual.truncated.sum() > 0


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_prompts_share_is_the_share_of_the_variance_between_groups(share):
    lengths = Lengths(law(prompt_share=share, cap_tokens=10**9))
    logs = np.log(lengths.draw(RNG.standard_normal(20_000)[:, None], RNG.standard_normal((20_000, 8))).tokens)
    within = logs.var(axis=1, ddof=1).mean()
    between = logs.mean(axis=1).var(ddof=1) - within / 8
    assert between / (between + within) == pytest.approx(share, abs=0.015)
    assert between + within == pytest.approx(1.0, abs=0.03), "sigma is that of all, whatever the share"


def test_drift_moves_lengths_and_the_share_at_the_cap():
    drifting = Lengths(law(drift=(Drift(version=10, factor=1.0), Drift(version=20, factor=4.0))))
    versions = np.array([0, 10, 15, 20, 99])
    assert np.exp(drifting.log_factor(versions)) == pytest.approx([1, 1, 2, 4, 4])
    assert drifting.draw(0.0, 0.0, versions).tokens.tolist() == [1000, 1000, 2000, 4000, 4000]
    assert drifting.cap_share(20) == pytest.approx(ndtr(-math.log(2)))
    assert drifting.share_up_to(2000, 15) == pytest.approx(0.5)
    score = RNG.standard_normal(COUNT)
    for version in (0, 20):
        assert drifting.at_score(score, version).tokens.mean() == pytest.approx(drifting.mean(version), rel=0.01)


def test_the_longest_of_one_is_the_mean():
    lengths = Lengths(law())
    assert lengths.expected_maximum(1) == pytest.approx(lengths.mean(), rel=1e-4)
    assert Lengths(law(prompt_share=1.0)).expected_maximum(1, 8) == pytest.approx(lengths.mean(), rel=1e-4)


def test_the_longest_of_independent_ones_is_the_integral_over_the_uniform():
    # E max of n = integral of the quantile at u**(1/n) over u in (0, 1).
    lengths = Lengths(law(prompt_share=0.0))
    u = (np.arange(400_000) + 0.5) / 400_000
    expected = lengths.quantile(u ** (1 / 32)).mean()
    assert lengths.expected_maximum(4, 8) == pytest.approx(expected, rel=1e-3)
    assert lengths.expected_maximum(32, 1) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_the_longest_of_groups_is_as_simulated(share):
    lengths = Lengths(law(prompt_share=share, cap_tokens=100_000))
    groups, size, batches = 16, 8, 20_000
    prompt = RNG.standard_normal((batches, groups, 1))
    # The longest of a group is that with the largest own effect: one draw of the maximum of `size` normals.
    own = ndtri(RNG.random((batches, groups, 1)) ** (1 / size))
    longest = lengths.draw(prompt, own).tokens.max(axis=(1, 2))
    error = longest.std() / math.sqrt(batches)
    assert lengths.expected_maximum(groups, size) == pytest.approx(longest.mean(), abs=4 * error)

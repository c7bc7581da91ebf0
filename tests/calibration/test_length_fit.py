"""Fits of length laws: known bodies are found again, and the shipped laws are what the sources give."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from rollsim.calibration.fit_length_law import fit_length_law
from rollsim.calibration.group_statistics import group_statistics
from rollsim.calibration.length_body_fit import fit_body
from rollsim.calibration.length_source import FOLDER, SETS, read_length_source
from rollsim.simulator.law_store import list_laws, load_law
from rollsim.simulator.length_body import Body
from rollsim.simulator.length_law import Lognormal
from rollsim.traces.errors import BadInput

SOURCES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
AIME = "r1-distill-1.5b-aime"
SHARES = np.array([0.01, 0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.85, 0.9, 0.95])


def test_one_lognormal_is_found_again():
    (part,), runaway = fit_body(SHARES, np.exp(7 + 0.9 * ndtri(SHARES)), 1, 100_000, None)
    assert (part.median_tokens, part.sigma) == pytest.approx((math.exp(7), 0.9), rel=1e-3)
    assert runaway == 0.0


def test_a_mixture_is_found_again_by_its_quantiles():
    truth = Body(
        (Lognormal(weight=0.6, median_tokens=500, sigma=0.4), Lognormal(weight=0.4, median_tokens=3000, sigma=0.8))
    )
    parts, _ = fit_body(SHARES, np.exp(truth.log_quantile(ndtri(SHARES))), 2, 100_000, None)
    # Where nothing was fitted, too: the quantiles between, and beyond by a little.
    between = np.array([0.02, 0.3, 0.55, 0.7, 0.93, 0.97])
    assert Body(parts).log_quantile(ndtri(between)) == pytest.approx(truth.log_quantile(ndtri(between)), abs=0.02)


def test_runaways_are_what_the_body_leaves_of_the_share_at_the_cap():
    shares = SHARES[SHARES < 0.8]
    # A tenth never ends; of the others, 1.6 standard deviations are below the cap.
    cap = math.exp(6 + 1.6)
    share = 0.1 + 0.9 * ndtr(-1.6)
    (part,), runaway = fit_body(shares, np.exp(6 + ndtri(shares / 0.9)), 1, round(cap), share)
    assert (part.median_tokens, part.sigma) == pytest.approx((math.exp(6), 1.0), rel=2e-3)
    assert runaway == pytest.approx(0.1, abs=1e-3)
    # A share that the body reaches alone leaves none.
    assert fit_body(SHARES, np.exp(6 + 1.5 * ndtri(SHARES)), 1, 2000, 1e-6)[1] == 0.0


def test_group_statistics_by_hand():
    tokens = np.array([[10, 30], [50, 50]])
    found = group_statistics(tokens, np.array([[1.0, 0.0], [0.0, 0.0]]))
    spread = math.sqrt(200)
    assert found == pytest.approx(
        {
            "std_of_group_means": 15.0,
            "std_in_group": spread / 2,
            "cv_in_group": spread / 20 / 2,
            "longest_over_group_mean": (1.5 + 1.0) / 2,
            "mean_pass_rate": 0.25,
            "std_pass_rate": 0.25,
            "all_wrong": 0.5,
            "all_right": 0.0,
            "pass_rate_length_correlation": -1.0,
            "median_right": 10.0,
            "median_wrong": 50.0,
        }
    )
    assert "all_wrong" not in group_statistics(tokens, None)


def test_every_law_has_a_source_and_every_source_a_law():
    assert [read_length_source(FOLDER / f"{name}.yaml").name for name in SOURCES] == SOURCES == list_laws()


@pytest.mark.parametrize("name", SOURCES)
def test_the_fit_gives_the_shipped_law(name):
    """To the last digit on one machine; fits of another may end a little elsewhere, and say the same lengths."""
    fitted, shipped = fit_length_law(read_length_source(FOLDER / f"{name}.yaml")), load_law(name)
    pairs = zip(fitted.evidence.quantiles, shipped.evidence.quantiles, strict=True)
    for again, quantile in pairs:
        assert again.model_copy(update={"error": quantile.error}) == quantile
        assert again.error == pytest.approx(quantile.error, abs=2e-3)
    for again, other in zip(fitted.evidence.observations, shipped.evidence.observations, strict=True):
        assert again.law == pytest.approx(other.law, rel=0.01)
        assert again.model_copy(update={"law": other.law}) == other
    assert (fitted.evidence.claims, fitted.cap_tokens) == (shipped.evidence.claims, shipped.cap_tokens)


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_fitted_is_met_and_held_out_numbers_set_nothing(name):
    source, law = read_length_source(FOLDER / f"{name}.yaml"), load_law(name)
    for fact, observation in zip(source.facts, law.evidence.observations, strict=False):
        assert (fact.what, fact.published, fact.used) == (observation.what, observation.published, observation.used)
        if fact.used:
            assert observation.law == pytest.approx(observation.published, rel=0.01)
            assert f"{SETS[fact.statistic]}: 1 to {fact.what}" in law.evidence.free_parameters
    used = [quantile for quantile in law.evidence.quantiles if quantile.used]
    assert 3 * source.components - 1 <= len(used), "no more parameters than quantiles"
    assert law.evidence.fitted_range_tokens == (used[0].tokens, used[-1].tokens)
    assert max(abs(quantile.error) for quantile in used) < 0.03


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_said_to_be_of_the_aime_groups_is(name):
    law, aime = load_law(name), load_law(AIME)
    said = {claim.part: claim.how for claim in law.evidence.claims}
    if AIME in said["prompt_share"]:
        assert law.prompt_share == aime.prompt_share
    if law.pass_rate and "as of the AIME groups" in said["pass_rate"]:
        for part in ("prompt_correlation", "sample_correlation"):
            assert getattr(law.pass_rate, part) == pytest.approx(getattr(aime.pass_rate, part), abs=0.005)


def test_a_spread_that_no_law_of_this_form_has_is_told():
    source = read_length_source(FOLDER / f"{AIME}.yaml")
    facts = [
        fact.model_copy(update={"published": 9000.0}) if fact.statistic == "std_of_group_means" else fact
        for fact in source.facts
    ]
    with pytest.raises(BadInput, match="beyond what the form of law can give"):
        fit_length_law(source.model_copy(update={"facts": tuple(facts)}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("- [0.1, 345.0]", "- [0.1, 200.0]"), "must rise"),
        (("- [0.95, 2781.0]", "- [0.95, 20000.0]"), "above the cap of 16384"),
        (("statistic: share_up_to, at: 4000, published", "statistic: share_up_to, published"), "at: needed by"),
        (("published: 0.969, used: false", "published: 0.969, used: true"), "no parameter is fitted to share_up_to"),
        (("statistic: cap_share", "statistic: cap_shar"), "did you mean 'cap_share'"),
        (("components: 2", "component: 2"), "did you mean 'components'"),
    ],
)
def test_bad_sources(tmp_path, change, message):
    text = (FOLDER / "rollpacker-code-14b.yaml").read_text()
    assert change[0] in text
    path = tmp_path / "s.yaml"
    path.write_text(text.replace(*change))
    with pytest.raises(BadInput) as error:
        read_length_source(path)
    assert message in str(error.value)

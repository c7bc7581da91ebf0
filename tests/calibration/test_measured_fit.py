"""The fit recovers a known cost, from noise and outliers too, and refuses what cannot tell it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollsim.calibration.measured_fit import fit_steps
from rollsim.calibration.measured_steps import of_steps
from rollsim.calibration.step_features import Features
from rollsim.traces.errors import BadInput

BASE_S, TOKEN_S, PREFILL_BASE_S, PREFILL_TOKEN_S, KV_S, PAIR_S = 5e-3, 2e-4, 6e-3, 5e-5, 2e-7, 3e-9


def steps(rng, count=1500) -> Features:
    """Steps of all kinds: decode of 1 to 32 sequences with any context, prefill chunks after any context."""
    prefill = rng.random(count) < 0.3
    sequences = 2 ** rng.integers(0, 6, count)
    kv_tokens = sequences * rng.integers(20, 4000, count)
    chunk, before = 2 ** rng.integers(4, 11, count), rng.integers(0, 4, count) * 512
    tokens = np.where(prefill, chunk + sequences, sequences)
    pairs = np.where(prefill, chunk * (before + chunk / 2), 0.0)
    return Features(tokens, prefill, sequences, kv_tokens.astype(float), pairs)


def truth_s(of: Features) -> np.ndarray:
    dense = np.where(of.prefill, PREFILL_BASE_S + PREFILL_TOKEN_S * of.tokens, BASE_S + TOKEN_S * of.tokens)
    return dense + KV_S * of.kv_tokens + PAIR_S * of.pairs


def test_without_noise_the_cost_comes_back():
    of = steps(np.random.default_rng(0))
    fit = fit_steps(of, truth_s(of), "m")
    np.testing.assert_allclose(fit.seconds(of), truth_s(of), rtol=1e-6)
    np.testing.assert_allclose(fit.decode_s, BASE_S + TOKEN_S * fit.decode_batch, rtol=1e-5)
    assert fit.kv_read_s == pytest.approx(KV_S, rel=1e-5)
    assert fit.attn_s == pytest.approx(PAIR_S, rel=1e-5)
    assert fit.mean_over_fit == pytest.approx(1)


def test_what_the_host_takes_is_a_term_of_its_own():
    """Known apart, it is not in the decode times, and steps take as long in all."""
    of = steps(np.random.default_rng(3))
    fit = fit_steps(of, truth_s(of) + 2e-3, "m", host_s=2e-3)
    np.testing.assert_allclose(fit.decode_s, BASE_S + TOKEN_S * fit.decode_batch, rtol=1e-5)
    np.testing.assert_allclose(fit.seconds(of), truth_s(of) + 2e-3, rtol=1e-6)


def test_where_the_host_works_beside_the_model_the_longer_of_both_is_the_step():
    """Steps that may have waited for the host's 8 ms tell nothing of the model, and bend none of its terms."""
    of = steps(np.random.default_rng(4))
    seen_s = np.maximum(truth_s(of), 8e-3)
    assert 0.1 < (truth_s(of) < 8e-3).mean() < 0.9
    fit = fit_steps(of, seen_s, "m", host_s=8e-3, overlap=True)
    told = seen_s > 1.2 * 8e-3
    np.testing.assert_allclose(fit.seconds(of)[told], seen_s[told], rtol=1e-4)
    # Sizes that only such steps had are extrapolated.
    np.testing.assert_allclose(fit.seconds(of), seen_s, rtol=0.15)
    assert fit.seconds(of).min() == 8e-3
    assert fit.kv_read_s == pytest.approx(KV_S, rel=1e-3)


def test_a_call_that_waits_for_the_batch_before_it_tells_of_that_one():
    """Calls of 1 (it only begins), 5, 7, 6 ms and two that pass on what has ended: four steps, the last without any."""
    calls = np.array([[1.0, 5.0, 7.0, 6.0, 0.1, 0.1]])
    assert of_steps(calls, 4, late=True).tolist() == [[6.0, 7.0, 6.0, 0.0]]
    assert of_steps(calls, 4, late=False).tolist() == [[1.0, 5.0, 7.0, 6.0]]


def test_its_covariance_is_how_far_it_is_off():
    """Over 60 draws of the noise, errors of the KV and pair terms in standard errors have a spread near 1."""
    off = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        of = steps(rng, 600)
        fit = fit_steps(of, truth_s(of) * (1 + 0.05 * rng.standard_normal(600)), "m")
        error = np.sqrt(np.diag(fit.covariance))
        off.append([(fit.kv_read_s - KV_S) / error[-2], (fit.attn_s - PAIR_S) / error[-1]])
    assert np.all(np.abs(np.mean(off, axis=0)) < 0.6)
    assert np.all((np.std(off, axis=0) > 0.6) & (np.std(off, axis=0) < 1.5))


def test_outliers_bend_no_term_but_count_in_the_mean():
    """A tenth of the steps takes five times as long, as on a machine that others use."""
    rng = np.random.default_rng(1)
    of = steps(rng)
    clean_s = truth_s(of) * (1 + 0.02 * rng.standard_normal(len(of.tokens)))
    slow = rng.random(len(clean_s)) < 0.1
    seconds = np.where(slow, 5 * clean_s, clean_s)
    fit = fit_steps(of, seconds, "m")
    np.testing.assert_allclose(fit.decode_s / fit.mean_over_fit, BASE_S + TOKEN_S * fit.decode_batch, rtol=0.04)
    assert fit.kv_read_s / fit.mean_over_fit == pytest.approx(KV_S, rel=0.05)
    assert fit.seconds(of).sum() == pytest.approx(seconds.sum())
    assert fit.mean_over_fit == pytest.approx(1.4, abs=0.1)
    assert fit.downweighted >= slow.sum()


@given(seed=st.integers(0, 1 << 30), noise=st.sampled_from([0.01, 0.3, 3.0]), count=st.integers(120, 400))
@settings(max_examples=40, deadline=None)
def test_whatever_was_measured_no_time_is_negative_or_falls(seed, noise, count):
    rng = np.random.default_rng(seed)
    of = steps(rng, count)
    fit = fit_steps(of, truth_s(of) * rng.lognormal(0, noise, count), "m")
    assert (fit.values >= 0).all()
    assert (np.diff(fit.decode_s) >= 0).all()
    assert (np.diff(fit.prefill_s) >= 0).all()
    assert (np.diff(fit.decode_batch) > 0).all()
    assert (np.diff(fit.prefill_tokens) > 0).all()
    assert np.isfinite(fit.covariance).all()


def changed(of: Features, **columns) -> Features:
    return of._replace(**columns)


REFUSED = {
    "one batch size": (lambda of: changed(of, tokens=np.where(of.prefill, of.tokens, 4)), "decode", "full_"),
    "no prefill": (lambda of: Features(*(column[~of.prefill] for column in of)), "prefill", "prefill_"),
    "one prefill size": (lambda of: changed(of, tokens=np.where(of.prefill, 64, of.tokens)), "prefill", "prefill_"),
    "no KV": (lambda of: changed(of, kv_tokens=0 * of.kv_tokens), "kv_read", "long_decode"),
    "contexts alike": (lambda of: changed(of, kv_tokens=np.where(of.prefill, 0.0, 100.0)), "kv_read", "long_decode"),
    "no pairs": (lambda of: changed(of, pairs=0 * of.pairs), "attn", "prefill_chunks"),
    "pairs as tokens": (lambda of: changed(of, pairs=np.where(of.prefill, 64.0, 0.0)), "attn", "prefill_chunks"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_steps_that_cannot_tell_a_term_are_refused_with_what_would(case):
    change, place, cure = REFUSED[case]
    of = change(steps(np.random.default_rng(2)))
    with pytest.raises(BadInput) as error:
        fit_steps(of, truth_s(of), "folder")
    assert [(fault.file, fault.place) for fault in error.value.faults] == [("folder", place)]
    assert cure in error.value.faults[0].allowed

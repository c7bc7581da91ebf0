"""Confidence intervals against tables of Student's t and against their own promise."""

import math
from dataclasses import asdict

import numpy as np
import pytest

from rollsim.traces.interval import interval

# Two-sided 95 % quantiles of Student's t, from printed tables.
QUANTILES = {2: 12.706, 3: 4.303, 5: 2.776, 11: 2.228, 31: 2.042}


@pytest.mark.parametrize(("n", "quantile"), QUANTILES.items())
def test_the_half_width_is_t_s_over_root_n(n, quantile):
    values = np.arange(n, dtype=float)
    found = interval(values)
    assert found.mean == (n - 1) / 2
    assert found.half_width == pytest.approx(quantile * values.std(ddof=1) / math.sqrt(n), rel=3e-4)
    assert found.low == pytest.approx(found.mean - found.half_width)


def test_one_value_has_no_interval_and_none_no_mean():
    assert asdict(interval(np.array([3.0]))) == {"n": 1, "mean": 3.0, "low": None, "high": None}
    assert asdict(interval(np.array([np.nan]))) == {"n": 0, "mean": None, "low": None, "high": None}
    assert interval(np.array([np.nan])).half_width is None


def test_scaled():
    found = interval(np.array([1.0, 3.0])).scaled(10.0)
    assert found.mean == 20.0
    assert found.half_width == pytest.approx(10 * 12.706, rel=1e-4)


def test_it_covers_the_mean_in_95_percent_of_samples():
    rng = np.random.default_rng(0)
    found = [interval(sample) for sample in rng.normal(7.0, 2.0, (2000, 5))]
    covered = np.mean([one.low <= 7.0 <= one.high for one in found])
    assert covered == pytest.approx(0.95, abs=3 * math.sqrt(0.95 * 0.05 / 2000))

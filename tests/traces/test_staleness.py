"""Staleness by hand, and against a plain loop."""

import numpy as np
import pytest

from rollsim.traces.staleness import staleness
from tests.traces import loops


def test_staleness_by_hand():
    """Of those trained at version 1, three began at 0 and one at 1; two of them span two versions."""
    found = staleness(loops.rollouts())
    assert found is not None
    assert (found.trajectories, found.groups) == (8, 4)
    assert [(one.versions, one.trajectories, one.share) for one in found.bins] == [(0, 5, 0.625), (1, 3, 0.375)]
    assert (found.mean, found.max, found.mixed_share) == (0.375, 1, 0.25)
    assert found.group_mean == (0 + 0 + 1 + 1) / 4


def test_bins_have_no_gaps():
    trained = np.ma.masked_less([7, 7, 9, 9, 9, 9, 9, 9, -1, -1], 0)
    found = staleness(loops.rollouts(version_start=np.array([5, 5, 4, 4, 4, 4, 4, 4, 0, 0]), version_trained=trained))
    assert found is not None
    assert [(one.versions, one.trajectories) for one in found.bins] == [(2, 2), (3, 0), (4, 0), (5, 6)]


def test_nothing_trained_is_none():
    assert staleness(loops.rollouts().slice(8)) is None
    assert staleness(loops.rollouts().slice(0, 0)) is None


def test_without_groups_the_rest_is_known():
    found = staleness(loops.rollouts(group_id=None))
    assert found is not None
    assert (found.mean, found.group_mean, found.groups) == (0.375, None, 0)


@pytest.mark.parametrize("seed", range(5))
def test_against_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    start, group = rng.integers(0, 5, 10), rng.integers(0, 4, 10)
    trained = start + rng.integers(0, 4, 10)
    found = staleness(loops.rollouts(version_start=start, version_end=trained, version_trained=trained, group_id=group))
    ages = [int(b - a) for a, b in zip(start, trained, strict=True)]
    worst = {g: max(age for age, h in zip(ages, group, strict=True) if h == g) for g in group}
    assert found is not None
    assert {one.versions: one.trajectories for one in found.bins if one.trajectories} == {
        a: ages.count(a) for a in ages
    }
    assert found.group_mean == pytest.approx(sum(worst.values()) / len(worst))

"""The ledger read as bubble and as fate, by hand."""

import numpy as np
import pyarrow as pa
import pytest

from rollsim.traces.bubble import BUBBLE, MOVING, bubbles, fates
from rollsim.traces.kpis import kpis
from rollsim.traces.schema import LEDGER_CATEGORIES, build
from tests.traces import loops


def test_bubble_by_pool_and_cause():
    train, rollout = bubbles(kpis(loops.loop()).ledger)
    if train.pool == "rollout":
        train, rollout = rollout, train
    assert (rollout.gpu_s, rollout.bubble_gpu_s, rollout.bubble_share, rollout.moving_gpu_s) == (80.0, 16.0, 0.2, 8.0)
    assert [(line.category, line.cause, line.share) for line in train.causes] == [("starved", "no batch", 0.5)]


def test_bubble_is_one_less_busy_over_held():
    """Bubble ratio of a synchronous rollout: 1 - busy / (replicas x makespan)."""
    busy_s, makespan_s = np.array([3.0, 7.0, 10.0]), 10.0
    ledger = build(
        "ledger",
        {
            "pool": "rollout",
            "category": pa.array(["decode"] * 3 + ["tail_bubble"] * 3),
            "gpu_s": np.concatenate([busy_s, makespan_s - busy_s]),
        },
    )
    (use,) = bubbles(kpis({"rollouts": loops.rollouts(), "ledger": ledger}).ledger)
    assert use.bubble_share == pytest.approx(1 - busy_s.sum() / (3 * makespan_s))


def test_categories_are_those_of_the_schema():
    assert set(BUBBLE) | set(MOVING) < set(LEDGER_CATEGORIES)
    assert not set(BUBBLE) & set(MOVING)


def test_fates_are_a_second_breakdown_of_generation():
    found = fates(loops.ledger())
    assert [(one.fate, one.reason, one.gpu_s) for one in found] == [
        ("trained", None, 36.0),
        ("discarded", "stale", 20.0),
    ]
    assert sum(one.share for one in found) == 1.0
    assert fates(None) == []


def test_a_pool_that_holds_nothing():
    assert bubbles([]) == []

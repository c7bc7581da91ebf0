"""The slowest 1 %: who they are, and what the trainer waited for them."""

import numpy as np
import pytest

from rollsim.traces.schema import build
from rollsim.traces.slowest import slowest


def rollouts(end_s, step, tokens=1, fate="trained"):
    n = len(end_s)
    columns = {
        "t_submit_s": np.zeros(n),
        "t_end_s": np.asarray(end_s, float),
        "output_tokens": np.broadcast_to(tokens, n).copy(),
        "step_trained": np.ma.masked_less(np.asarray(step), 0),
        "fate": fate,
    }
    return build("rollouts", columns)


def steps(**columns):
    return build(
        "steps", {name: np.asarray(values, float if name.endswith("_s") else int) for name, values in columns.items()}
    )


def two_steps(slow_s):
    """100 in each step: step 0 by 10 s, step 1 by 30 s, but for a straggler in each."""
    ends = np.concatenate([np.full(99, 10.0), [slow_s[0]], np.full(99, 30.0), [slow_s[1]]])
    return rollouts(ends, np.repeat([0, 1], 100), tokens=np.where(np.isin(ends, slow_s), 99, 1))


def test_by_hand():
    """The trainer waits for both; others end at 10 and 30 s, the slow ones at 40 and 90 s."""
    table = steps(step=[0, 1], t0_s=[40, 90], t1_s=[50, 95], generate_s=[40, 40])
    found = slowest(two_steps((40.0, 90.0)), table, span_s=100.0)
    assert found is not None
    assert (found.trajectories, found.of, found.from_s, found.mean_s) == (2, 200, 40.0, 65.0)
    assert found.others_mean_s == (99 * 10 + 99 * 30) / 198
    assert found.token_share == 2 * 99 / (2 * 99 + 198)
    assert (found.steps, found.discarded) == (2, 0)
    # Step 1: from 30 s, but until 50 s the trainer was at work.
    assert found.waited_s == 30 + 40
    assert found.waited_share == 0.7


def test_a_trainer_that_did_not_wait_lost_nothing():
    table = steps(step=[0, 1], t0_s=[40, 90], t1_s=[90, 95], generate_s=[0, 0])
    found = slowest(two_steps((40.0, 90.0)), table)
    assert found is not None
    assert (found.waited_s, found.waited_share) == (0.0, None)


def test_waiting_for_the_pool_to_drain_counts():
    table = steps(step=[0, 1], t0_s=[40, 90], t1_s=[50, 95], generate_s=[0, 0], drain_s=[25, 0])
    found = slowest(two_steps((40.0, 90.0)), table)
    assert found is not None
    assert found.waited_s == 25.0


def test_slow_ones_that_were_discarded():
    ends = np.append(np.full(99, 10.0), 500.0)
    fate = np.append(np.repeat("trained", 99), "discarded")
    table = rollouts(ends, np.append(np.zeros(99, int), -1), fate=fate)
    found = slowest(table, steps(step=[0], t0_s=[10], t1_s=[20], generate_s=[10]))
    assert found is not None
    assert (found.discarded, found.steps, found.waited_s) == (1, 0, 0.0)


@pytest.mark.parametrize(("n", "count"), [(0, None), (99, None), (100, 1), (199, 1), (200, 2)])
def test_fewer_than_100_are_refused(n, count):
    found = slowest(rollouts(np.arange(n), np.zeros(n, int)))
    assert (found and found.trajectories) == count
    assert found is None or found.waited_s is None


def test_what_has_not_ended_does_not_count():
    ends = np.append(np.arange(100.0), np.nan)
    found = slowest(rollouts(ends, np.append(np.zeros(100, int), -1)))
    assert found is not None
    assert (found.of, found.from_s) == (100, 99.0)


def test_no_step_was_taken():
    assert (
        slowest(rollouts(np.arange(100), np.full(100, -1)), build("steps", {"step": np.empty(0, int)})).waited_s == 0.0
    )

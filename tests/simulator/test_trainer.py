"""The parts of a train step, and the account of the train pool."""

import numpy as np
import pytest

from rollsim.simulator.leases import Leases
from rollsim.simulator.trainer import Part, TrainLane, gradient_parts, pass_parts, update_parts
from tests.simulator.published import cost

TOKENS = np.array([1000, 3000, 2000, 4000, 500, 700, 800, 900, 1000])


def by_category(parts):
    return {part.category: part.seconds for part in parts}


def test_passes_by_role():
    c = cost()
    assert pass_parts(c, TOKENS, ()) == []
    parts = pass_parts(c, TOKENS, {"reference", "logprob", "critic"})
    assert [part.category for part in parts] == ["logprob", "reference", "critic"]
    assert {part.seconds for part in parts} == {c.forward_s(TOKENS)}


def test_a_critic_costs_as_much_again():
    c = cost()
    alone, both = gradient_parts(c, TOKENS, ()), gradient_parts(c, TOKENS, {"critic"})
    assert both[:-1] == alone
    assert both[-1].seconds == pytest.approx(sum(part.seconds for part in alone))
    for name, seconds in by_category(update_parts(c, ())).items():
        assert by_category(update_parts(c, {"critic"}))[name] == pytest.approx(2 * seconds)


def test_parts_are_what_the_cost_says():
    c = cost(gpus=16, model_parallel=4, layout={"pipeline": 2})
    work = c.gradients(TOKENS)
    assert [part.seconds for part in gradient_parts(c, TOKENS, ())] == [
        work.busy_s, work.slack_s, work.bubble_s, work.communication_s,
    ]  # fmt: skip
    assert min(work.slack_s, work.bubble_s, work.communication_s) > 0


def test_the_lane_accounts_for_every_second():
    leases = Leases(4)
    lane = TrainLane(leases, 1, 3)
    lane.take(2.0)
    lane.until(5.0, "starved", "no batch")
    lane.spend([Part("logprob", None, 1.0), Part("optimizer", None, 0.5)])
    lane.until(8.0, "sync", "weights")
    lane.release(8.0)
    lease = leases.all[0]
    assert (lease.first, lease.count, lease.t0_s, lease.t1_s) == (1, 3, 2.0, 8.0)
    assert dict(lease.charges) == {
        ("starved", "no batch"): 3.0, ("logprob", None): 1.0, ("optimizer", None): 0.5, ("sync", "weights"): 1.5,
    }  # fmt: skip

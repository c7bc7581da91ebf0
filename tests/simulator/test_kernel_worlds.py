"""The compiled kernel against the step-by-step reference in random worlds; DESIGN calls this INV-9."""

import os

import pytest
from hypothesis import HealthCheck, given, settings

from tests.simulator.kernel_views import SeenReference, SeenReplica, assert_at_rest, has_plain_versions
from tests.simulator.outcomes import differences, outcome
from tests.simulator.worlds import worlds

# HYPOTHESIS_PROFILE=explore looks at other, and ten times as many, worlds.
MORE = 10 if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else 1


def cases(count):
    return settings(max_examples=count * MORE, suppress_health_check=list(HealthCheck))


def run(factory, world):
    engines = []

    def make(limits, cost):
        engines.append(factory(limits, cost))
        engines[0].plain = has_plain_versions(world)
        return engines[0]

    return outcome(make, world), engines[0]


def check(world):
    """Every time, count and state to 1e-9, and at the end the prefix caches, copy by copy and in order."""
    ours, replica = run(SeenReplica, world)
    theirs, reference = run(SeenReference, world)
    assert differences(theirs, ours) == []
    assert replica.cache() == reference.cache()
    return replica


@cases(2000)
@given(worlds())
def test_inv9_kernel_equals_step_by_step_and_inv3_frees_everything(world):
    assert_at_rest(check(world).arrays)


@pytest.mark.parametrize(
    "stress",
    [
        {"async_scheduling": True, "rates": True},
        {"async_scheduling": False, "rates": True},
        {"async_scheduling": True, "rates": False, "max_ranks": 1},
        {"max_requests": 40},
    ],
    ids=["async with rates", "sync with rates", "async alone", "many requests"],
)
def test_inv9_kernel_equals_step_by_step_under(stress):
    @cases(150)
    @given(worlds(**stress))
    def compare(world):
        check(world)

    compare()

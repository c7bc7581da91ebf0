"""The kernel's state: looking leaves no trace, copies are independent, and every way to run gives the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rollsim.simulator import trajectories
from rollsim.simulator.costs import StepCost
from rollsim.simulator.kernel import fleet, groups, loop, records, state
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.replica import Replica
from rollsim.traces.errors import BadInput
from tests.simulator.kernel_views import bits
from tests.simulator.outcomes import outcome
from tests.simulator.timed_replica import TimedReplica
from tests.simulator.worlds import World, worlds

FEW = settings(max_examples=60, suppress_health_check=list(HealthCheck))
FOREVER = 1 << 62


def run(factory, world):
    replicas = []

    def make(limits, cost):
        replicas.append(factory(limits, cost))
        return replicas[0]

    return outcome(make, world), bits(replicas[0].arrays)


class Plain(TimedReplica):
    """Does not look."""

    def advance(self, t):
        Replica.advance(self, t)


class Watched(TimedReplica):
    """Looks before every touch, at times before, at and behind it."""

    def _touch(self, t_s):
        for fraction in (0.0, 0.3, 0.7, 1.0, 2.0):
            self.look(self.now_s + fraction * (t_s - self.now_s))
        super()._touch(t_s)


@FEW
@given(worlds())
def test_inv7_looking_changes_no_bit(world):
    assert run(Watched, world) == run(Plain, world)


@FEW
@given(worlds())
def test_looking_shows_what_running_there_would(world):
    end_s = outcome(Plain, world).end_s
    touched = [touch for touch in world.touches if touch["t"] < end_s / 2]
    seen = []

    class Halfway(Plain):
        def run(self):
            seen.append(self.look(end_s / 2))
            self.advance(end_s / 2)
            seen.append(self.look(-1.0))
            super().run()

    outcome(Halfway, World(world.limits, world.cost, touched))
    assert seen[0] == seen[1]


@FEW
@given(worlds())
def test_inv7_the_same_world_gives_the_same_bits(world):
    assert run(Plain, world) == run(Plain, world)


@FEW
@given(worlds())
def test_a_copy_goes_its_own_way(world):
    class Copied(Plain):
        def run(self):
            copy = state.clone(self.arrays)
            before = bits(copy)
            super().run()
            assert bits(copy) == before
            loop.run(copy, float("inf"), FOREVER, FOREVER)
            assert bits(copy) == bits(self.arrays)

    outcome(Copied, world)


@FEW
@given(worlds())
def test_the_span_log_changes_nothing(world):
    def logging(limits, cost):
        return Plain(limits, cost, log_spans=True)

    logged, plain = run(logging, world), run(Plain, world)
    assert logged[0] == plain[0]
    assert {k: v for k, v in logged[1].items() if "span" not in k} == {
        k: v for k, v in plain[1].items() if "span" not in k
    }


def test_without_the_compiler_the_results_are_the_same_bits(repository: Path):
    picked = []

    @settings(max_examples=12, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(worlds(max_requests=10))
    def pick(world):
        picked.append(world)

    pick()
    script = (
        "import json, sys, numba\n"
        "assert numba.config.DISABLE_JIT\n"
        "from tests.simulator.test_kernel_state import results\n"
        "print(json.dumps([results(plain) for plain in json.load(sys.stdin)]))\n"
    )
    plain = [world.to_dict() for world in picked]
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(plain), capture_output=True, text=True, cwd=repository, check=True,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert json.loads(done.stdout) == json.loads(json.dumps([results(world) for world in plain]))


def results(plain):
    """Outcome of a world as JSON; floats survive it exactly."""
    seen = outcome(TimedReplica, World.from_dict(plain))
    return [seen.seen, seen.requests, seen.end_s]


LIMITS = EngineLimits(max_num_seqs=4, max_num_batched_tokens=32, block_size=4, num_blocks=16, max_model_len=100)


RECORDS = [
    value
    for module in (records, fleet, groups, trajectories)
    for value in vars(module).values()
    if isinstance(value, np.dtype)
]


@pytest.mark.parametrize("record", RECORDS)
def test_no_field_is_hidden_by_a_name_of_numpy_without_the_compiler(record):
    """A field named `size` would read as the size of the scalar."""
    assert [name for name in record.names if hasattr(np.record, name)] == []


@pytest.mark.parametrize(
    ("request_", "limits", "told"),
    [
        ({"prompt_tokens": 0, "output_tokens": 1}, {}, "at least 1 token"),
        ({"prompt_tokens": 5, "output_tokens": 0}, {}, "at least 1 token"),
        ({"prompt_tokens": 100, "output_tokens": 1}, {}, "max_model_len"),
        ({"prompt_tokens": 60, "output_tokens": 6}, {}, "needs 17 KV blocks"),
        ({"prompt_tokens": 60, "output_tokens": 5, "drafts": 1}, {}, "needs 17 KV blocks"),
        ({"prompt_tokens": 60, "output_tokens": 5}, {"num_speculative_tokens": 3}, "needs 17 KV blocks"),
        ({"prompt_tokens": 30, "output_tokens": 4}, {"chunked_prefill": False}, "chunked prefill is off"),
        ({"prompt_tokens": 5, "output_tokens": 5, "rate": 0.5}, {}, "rate"),
        ({"prompt_tokens": 5, "output_tokens": 5, "rank": 1}, {}, "rank"),
        ({"prompt_tokens": 5, "output_tokens": 5, "parent": "nobody", "shared_tokens": 3}, {}, "'nobody'"),
    ],
)
def test_a_request_that_can_never_run_is_refused_by_name_and_leaves_no_trace(request_, limits, told):
    replica = replica_of(**limits)
    before = bits(replica.arrays)
    with pytest.raises(BadInput, match=told) as refused:
        replica.dispatch(1.0, "r7", **request_)
    assert "request 'r7'" in str(refused.value)
    assert bits(replica.arrays) == before


def test_the_largest_request_that_fits_runs():
    replica = replica_of()
    replica.dispatch(0.0, "r", 60, 5)
    replica.run()
    assert replica.results()["r"].output_tokens == 5


def test_set_rate_refuses_drafts_that_cannot_fit():
    replica = replica_of()
    replica.dispatch(0.0, "r", 60, 5)
    with pytest.raises(BadInput, match=r"request 'r'.*17 KV blocks"):
        replica.set_rate(0.0, "r", 1.5, 1)


def replica_of(**changes):
    fields = {name: getattr(LIMITS, name) for name in LIMITS.__dataclass_fields__} | changes
    limits = EngineLimits(**fields)
    return Replica(limits, StepCost.affine(limits.max_num_batched_tokens, limits.max_num_seqs))

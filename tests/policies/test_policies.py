"""Each built-in policy on a still view."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from rollsim.policies.admission_backlog import Backlog
from rollsim.policies.admission_concurrency import Concurrency
from rollsim.policies.admission_fixed_batch import FixedBatch
from rollsim.policies.admission_replica_batch import ReplicaBatch
from rollsim.policies.admission_staleness_quota import StalenessQuota
from rollsim.policies.base import NEVER, POINTS, Subscription, Unit, Waiting
from rollsim.policies.compose import Chain, FirstAnswer, Minimum
from rollsim.policies.ordering_fcfs import Fcfs
from rollsim.policies.ordering_fresh_first import FreshFirst
from rollsim.policies.prompts_in_order import InOrder
from rollsim.policies.readiness_batch import Batch
from rollsim.policies.readiness_streaming import Streaming
from rollsim.policies.registry import BUILT_IN, COMPOSED, UNSTABLE, find
from rollsim.policies.round_end_barrier import Barrier
from rollsim.policies.round_end_first_k import FirstK
from rollsim.policies.routing_even_split import EvenSplit
from rollsim.policies.routing_least_load import LeastLoad
from rollsim.policies.selection_drop_stale import DropStale
from rollsim.policies.selection_drop_zero_variance import DropZeroVariance
from rollsim.policies.selection_in_order import InOrder as TrainInOrder
from rollsim.policies.weight_sync_drain import Drain
from rollsim.policies.weight_sync_in_flight import InFlight
from rollsim.policies.weight_sync_relay import Relay
from rollsim.traces.errors import BadInput
from tests.policies.views import still_view


def unit(group, oldest=0, spread=1.0):
    return Unit(group, oldest, 0.0, 0.5, spread, 100)


def test_there_are_fourteen_points_and_each_is_built_in_or_unstable():
    assert len(POINTS) == 14
    assert set(UNSTABLE) == {"prompts", "bubble", "tool_wait"}
    assert set(BUILT_IN) | set(UNSTABLE) == set(POINTS)
    assert set(COMPOSED) <= set(BUILT_IN)


def test_every_built_in_is_frozen_and_has_the_methods_of_its_point():
    for point, classes in BUILT_IN.items():
        asked = {name for name in vars(POINTS[point]) if not name.startswith("_")}
        for policy in classes.values():
            assert policy.__dataclass_params__.frozen
            assert asked <= set(dir(policy)), (point, policy)
            assert hasattr(policy, "subscription") or "subscription" in policy.__dataclass_fields__


def test_policies_import_nothing_heavy():
    code = (
        "import sys, rollsim.policies.registry, rollsim.policies.compose\n"
        "print([m for m in ('simpy', 'scipy', 'numba', 'pydantic', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_gets_the_closest():
    with pytest.raises(BadInput, match="did you mean 'least_load'"):
        find("routing", "lest_load", "run.yaml", "policies.routing")
    with pytest.raises(BadInput, match="did you mean 'hold'"):
        find("tool_wait", "holt", "run.yaml", "policies.tool_wait")


def test_fixed_batch_starts_one_batch_at_a_time():
    assert FixedBatch().may_start(still_view()) == 4
    assert FixedBatch().may_start(still_view(groups_started=4, groups_in_flight=1)) == 0
    assert FixedBatch().may_start(still_view(groups_started=4)) == 0
    assert FixedBatch().may_start(still_view(groups_started=4, steps=1)) == 4
    assert FixedBatch(ahead=1).may_start(still_view(groups_started=4)) == 4
    assert FixedBatch(ahead=1).may_start(still_view(groups_started=8)) == 0
    assert FixedBatch().may_start(still_view(groups_started=4, groups_dropped=1)) == 1
    assert FixedBatch(ahead=2).may_start(still_view(groups_started=5, groups_in_flight=5)) == 3
    assert FixedBatch(ahead=2).may_start(still_view(groups_started=4, groups_in_flight=1)) == 0


def test_over_issue_tops_up_what_was_carried_and_replaces_what_was_dropped():
    policy = FixedBatch(over_issue=2)
    assert policy.may_start(still_view()) == 6
    assert policy.may_start(still_view(groups_started=6)) == 0
    assert policy.may_start(still_view(groups_started=6, steps=1)) == 4
    assert policy.may_start(still_view(groups_started=6, groups_dropped=2, steps=1)) == 6


def test_replica_batch_and_backlog():
    assert ReplicaBatch(groups=3).may_start(still_view(replica_loads=(0, 2, 0))) == 6
    assert ReplicaBatch(groups=3).may_start(still_view(replica_loads=(1, 2))) == 0
    assert Backlog(batches=2).may_start(still_view(groups_in_flight=3, groups_buffered=1)) == 4
    assert Backlog(batches=1).may_start(still_view(groups_in_flight=3, groups_buffered=2)) == 0


def test_readiness():
    assert Batch().groups(still_view(groups_missing=3)) == 3
    assert Streaming(micro_groups=2).groups(still_view(groups_missing=3)) == 2
    assert Streaming(micro_groups=2).groups(still_view(groups_missing=1)) == 1


def test_round_end():
    enough = {"groups_missing": 4, "groups_buffered": 4, "trajectories_in_flight": 1}
    assert FirstK("drop").close(still_view(**enough)) == "drop"
    assert FirstK().close(still_view(**enough | {"groups_buffered": 3})) is None
    assert FirstK().close(still_view(**enough | {"trajectories_in_flight": 0})) == "carry"
    assert FirstK().close(still_view(**enough | {"groups_missing": 0})) is None
    assert FirstK().close(still_view(**enough | {"groups_missing": 0})) is None
    assert Barrier().close(still_view(**enough)) is None


def test_ordering():
    waiting = Waiting(np.array([4, 2, 3]), np.array([0, 7, 0]))
    assert np.argsort(Fcfs().keys(still_view(), waiting), kind="stable").tolist() == [1, 2, 0]
    assert np.argsort(FreshFirst().keys(still_view(), waiting), kind="stable").tolist() == [0, 2, 1]


def test_dynamic_sampling_drops_groups_without_spread():
    units = [unit(0, spread=0.0), unit(1, spread=1.0), unit(2, spread=float("nan"))]
    chosen, dropped = DropZeroVariance().select(still_view(), units)
    assert ([u.group for u in chosen], [u.group for u in dropped]) == ([1, 2], [0])


@pytest.mark.parametrize(
    ("policy", "plan"),
    [
        (Drain(), ("drain", False)),
        (InFlight(keep_kv=True), ("interrupt", True)),
        (InFlight(), ("interrupt", False)),
        (Relay(), ("relay", False)),
    ],
)
def test_weight_sync(policy, plan):
    assert tuple(policy.plan(still_view())) == plan


def test_the_quota_counts_versions_and_gives_back_what_is_dropped():
    assert StalenessQuota(eta=2).may_start(still_view()) == 12
    assert StalenessQuota(eta=0).may_start(still_view(groups_started=4)) == 0
    assert StalenessQuota(eta=0).may_start(still_view(groups_started=4, groups_dropped=3)) == 3


@pytest.mark.parametrize(
    ("eta", "versions", "groups", "may"), [(0, 3, 4, [4, 4, 4, 8]), (1, 2, 3, [4, 7, 8, 11]), (3, 3, 4, [8, 8, 8, 12])]
)
def test_the_quota_is_what_the_trainer_takes_by_a_version(eta, versions, groups, may):
    """A step of 4 groups that publishes several versions: all groups taken at the first, or as they stream in."""
    views = [still_view(versions_per_step=versions, groups_per_version=groups, version=v) for v in range(4)]
    assert [StalenessQuota(eta=eta).may_start(view) for view in views] == may


def test_concurrency_counts_trajectories():
    assert Concurrency(trajectories=10).may_start(still_view(trajectories_in_flight=5)) == 2
    assert Concurrency(trajectories=1).may_start(still_view()) == 1
    assert Concurrency(trajectories=1).may_start(still_view(trajectories_in_flight=1)) == 0


def test_prompts_come_in_order_and_again():
    assert [tuple(p) for p in InOrder(prompts=3).choose(still_view(groups_started=2), 3)] == [
        (2, 0, 0),
        (0, 1, 0),
        (1, 1, 0),
    ]
    assert [tuple(p) for p in InOrder().choose(still_view(groups_started=2), 1)] == [(2, 0, 0)]


def test_routing():
    assert EvenSplit().route(still_view(), 5) == [0, 0, 0, 1, 1]
    assert LeastLoad().route(still_view(replica_loads=(3, 0)), 5).tolist() == [1, 1, 1, 0, 1]


def test_selection():
    units = [unit(2, 1), unit(0), unit(3)]
    chosen, dropped = DropStale(eta=1).select(still_view(version=2), units)
    assert ([u.group for u in chosen], [u.group for u in dropped]) == ([2], [0, 3])
    assert [u.group for u in TrainInOrder().select(still_view(oldest_under_way=2), units).chosen] == [0]
    assert [u.group for u in TrainInOrder().select(still_view(oldest_under_way=3), units).chosen] == [0, 2]


def test_the_algebra():
    quota, cap = StalenessQuota(eta=0), Concurrency(trajectories=4)
    assert Minimum([quota, cap]).may_start(still_view()) == 2
    assert Minimum([quota, cap]).subscription == Subscription(finishes=1)
    assert Chain([]).select(still_view(), [unit(0)]).chosen == [unit(0)]
    units = [unit(0), unit(1, 2)]
    chosen, dropped = Chain([DropStale(eta=0), TrainInOrder()]).select(still_view(version=2), units)
    assert (list(chosen), dropped) == ([], [unit(0)])

    @dataclasses.dataclass(frozen=True)
    class Odd:
        subscription: Subscription = NEVER

        def route(self, view, count):
            return [1 if i % 2 else None for i in range(count)]

    assert FirstAnswer([Odd(), EvenSplit()]).route(still_view(), 4) == [0, 1, 1, 1]

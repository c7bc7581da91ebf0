"""Random small worlds with random policies of every point hold the invariants of docs/design.md, section 7."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rollsim.policies.base import EVERY_FINISH, EVERY_GROUP, NEVER, Prompt, Selected, Subscription
from rollsim.simulator.invariants import check, same
from rollsim.simulator.world_failed import WorldFailed
from rollsim.simulator.world_tables import tables
from tests.simulator.world.small import SPLIT, run, setup

WORLDS = settings(
    max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)


@dataclass(frozen=True)
class Watch:
    """Looks, and does nothing."""

    subscription: Subscription

    def look(self, view):
        """Read something."""
        assert view.now_s >= 0


@st.composite
def worlds(draw):
    """Arguments of `small.setup`."""
    prompts, samples = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    count = draw(st.integers(1, 6))
    length = st.one_of(st.integers(1, 6), st.integers(1, 150))
    lengths = draw(st.lists(st.lists(length, min_size=samples, max_size=samples), min_size=count, max_size=count))
    routing = draw(st.sampled_from(["even_split", "least_load"]))
    ordering = draw(st.sampled_from(["fcfs", "fresh_first"]))
    shared = draw(st.booleans())
    policies = {"routing": routing, "ordering": ordering}
    selection = draw(st.sampled_from([[], ["drop_zero_variance"], ["in_order"]]))
    if shared:
        policies["admission"] = draw(
            st.sampled_from(
                [{"use": "fixed_batch"}, {"use": "fixed_batch", "over_issue": 2}, {"use": "staleness_quota", "eta": 0}]
            )
        )
        if policies["admission"].get("over_issue"):
            selection = [one for one in selection if one != "in_order"]
            policies["round_end"] = {"use": "first_k", "unfinished": draw(st.sampled_from(["carry", "drop"]))}
    else:
        eta = draw(st.integers(0, 3))
        policies["allocation"] = SPLIT
        policies["admission"] = draw(
            st.sampled_from(
                [
                    [{"use": "fixed_batch", "ahead": eta}],
                    [{"use": "staleness_quota", "eta": eta}],
                    [{"use": "staleness_quota", "eta": eta}, {"use": "concurrency", "trajectories": samples * 2}],
                    [{"use": "replica_batch", "groups": 1}, {"use": "backlog", "batches": eta + 2}],
                ]
            )
        )
        how = draw(st.sampled_from(["drain", "relay", {"use": "in_flight", "keep_kv": True}, {"use": "in_flight"}]))
        policies["weight_sync"] = how
        if draw(st.booleans()):
            selection = [*selection, {"use": "drop_stale", "eta": eta}]
        if draw(st.booleans()):
            policies["readiness"] = {"use": "streaming", "micro_groups": draw(st.integers(1, 3))}
    policies["selection"] = selection
    if draw(st.integers(0, 3)) == 0:
        policies["early_stop"] = {"use": "token_cap", "tokens": draw(st.integers(1, 60)), "every_s": 7.0}
    if draw(st.integers(0, 3)) == 0:
        policies["migration"] = {"use": "repack", "at_most": draw(st.integers(2, 8)), "every_s": 5.0}
    if draw(st.integers(0, 3)) == 0:
        gate = {"drafts": draw(st.integers(1, 3)), "acceptance": draw(st.sampled_from([0.3, 1.0]))}
        policies["decoding"] = gate | {"use": "batch_gated", "at_most": draw(st.integers(1, 6))}
    train = {"mini_batches": draw(st.integers(1, prompts * samples)), "validate_every": draw(st.sampled_from([0, 2]))}
    train |= {"validation_prompts": 2, "checkpoint_every": draw(st.sampled_from([0, 1])), "checkpoint_s": 1.0}
    reward = st.sampled_from([0.0, 1.0])
    rewards = [[draw(reward) for _ in range(samples)] for _ in range(count)]
    # At least one prompt has a signal, or dynamic sampling would never end.
    signal = samples > 1
    if signal:
        rewards[0][:2] = [0.0, 1.0]
    elif "drop_zero_variance" in selection:
        policies["selection"] = [one for one in selection if one != "drop_zero_variance"]
    return {
        "policies": policies,
        "lengths": lengths,
        "rewards": tuple(map(tuple, rewards)),
        "gpus": 2 if shared else 4,
        "prompts": prompts,
        "samples": samples,
        "steps": draw(st.integers(1, 4)),
        "train": train,
        "limits": {
            "max_model_len": 176,
            "max_num_seqs": draw(st.sampled_from([2, 16])),
            # With drafts, 11 blocks hold no response of full length.
            "num_blocks": draw(st.sampled_from([12 if "decoding" in policies else 11, 40, 2000])),
            "async_scheduling": draw(st.booleans()),
        },
        "reward_s": draw(st.sampled_from([0.0, 1.5, {"median_s": 1.0, "p99_s": 9.0}])),
        "hand": draw(st.booleans()),
    }


def outcome(made, watchers=()):
    """The world after its run, or why it failed: asynchronous worlds may run dry, and must say so."""
    try:
        return run(made, watchers), None
    except WorldFailed as error:
        return None, str(error)


@given(arguments=worlds())
@WORLDS
def test_inv_1_to_6_and_12_hold_in_random_worlds(arguments):
    made = setup(**arguments)
    world, failure = outcome(made)
    if world is None:
        assert failure.startswith(("nothing can happen", "no batch in sight")), failure
        return
    found = check(
        tables(world),
        gpus=made.config.cluster.gpus,
        span_s=world.end_s,
        hard_eta=made.policies.hard_eta,
        streams=made.streams,
        leases=world.leases.all,
    )
    assert {finding.id for finding in found} >= {"INV-1", "INV-2", "INV-3", "INV-5", "INV-6", "INV-12"}
    assert [str(finding) for finding in found if not finding.ok] == []
    assert len(world.steps) == made.config.train.steps
    for step in world.steps:
        full = arguments["prompts"] * arguments["samples"]
        assert step["trajectories"] == full or (step["trajectories"] < full and "early_stop" in arguments["policies"])


@given(arguments=worlds(), every=st.sampled_from([EVERY_FINISH, EVERY_GROUP]))
@WORLDS
def test_inv_7_a_watcher_that_does_nothing_changes_no_bit(arguments, every):
    made = setup(**arguments)
    plain, failure = outcome(made)
    watched, other = outcome(made, [Watch(every)])
    assert (failure is None) == (other is None)
    if plain is None:
        return
    finding = same("INV-7", "with a watcher", tables(plain), tables(watched))
    assert finding.ok, finding
    again, _ = outcome(made)
    assert same("INV-7", "once more", tables(plain), tables(again)).ok


@pytest.mark.parametrize("allocation", ["colocate", SPLIT])
@pytest.mark.parametrize("seed", range(4))
def test_inv_8_eta_0_hard_is_the_synchronous_schedule(allocation, seed):
    lengths = np.random.default_rng(seed).integers(1, 200, (12, 2)).tolist()
    gpus = 2 if allocation == "colocate" else 4
    common = {"allocation": allocation, "routing": "least_load"}
    hard = {
        "admission": {"use": "staleness_quota", "eta": 0},
        "selection": ["in_order", {"use": "drop_stale", "eta": 0}],
    }
    synchronous = run(setup(common, lengths, gpus=gpus, prompts=4, steps=3))
    bounded = run(setup(common | hard, lengths, gpus=gpus, prompts=4, steps=3))
    assert bounded.setup.policies.hard_eta == 0
    finding = same("INV-8", "eta 0", tables(synchronous), tables(bounded))
    assert finding.ok, finding


def replaced(made, **policies):
    """The setup with other policies."""
    from dataclasses import replace

    return replace(made, policies=replace(made.policies, **policies))


@dataclass(frozen=True)
class Wrong:
    """Answers what it was not offered."""

    subscription: Subscription = NEVER

    def route(self, view, count):
        """A replica that there is not."""
        return [99] * count

    def choose(self, view, groups):
        """One prompt too many."""
        return [Prompt(i, 0) for i in range(groups + 1)]

    def select(self, view, units):
        """A group that is not there."""
        return Selected([unit._replace(group=1_000_000) for unit in units], [])

    def groups(self, view):
        """More than the step lacks."""
        return view.groups_missing + 1


@pytest.mark.parametrize("point", ["routing", "prompts", "selection", "readiness"])
def test_inv_10_a_policy_returns_only_what_it_was_offered(point):
    made = replaced(setup({}, [(3, 5), (4, 10)], gpus=2), **{point: Wrong()})
    with pytest.raises(WorldFailed, match="INV-10"):
        run(made)


def test_a_world_that_cannot_go_on_says_why():
    """The quota of groups is used up by a batch that is too small for the step."""
    made = setup({"allocation": SPLIT, "admission": {"use": "concurrency", "trajectories": 2}, "weight_sync": "drain"},
                 [(3, 5)], prompts=2, steps=1)  # fmt: skip
    made = replaced(made, selection=Nothing())
    with pytest.raises(WorldFailed, match="waits for 2 more groups"):
        run(setup_with_end(made))


@dataclass(frozen=True)
class Nothing:
    """Selects nothing."""

    subscription: Subscription = NEVER

    def select(self, view, units):
        """Keep all in the buffer."""
        return Selected([], [])


def setup_with_end(made):
    """Admission that starts one batch alone."""
    return replaced(made, admission=Once())


@dataclass(frozen=True)
class Once:
    """One batch, ever."""

    subscription: Subscription = NEVER

    def may_start(self, view):
        """Start it."""
        return 0 if view.groups_started else view.groups_per_step

"""INV-7 where it is hard: ends at one instant, steps in flight when a round closes, last tokens in flight at a swap."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollsim.policies.base import EVERY_FINISH, EVERY_GROUP
from rollsim.simulator.invariants import check, same
from rollsim.simulator.world_tables import tables
from tests.simulator.world.small import SPLIT, run, setup
from tests.simulator.world.test_world_invariants import Watch, outcome
from tests.simulator.world.test_world_seconds import modes

FEW = {"max_num_batched_tokens": 256, "max_model_len": 176, "num_blocks": 11}
FIRST_K = {"admission": {"use": "fixed_batch", "over_issue": 1}, "round_end": {"use": "first_k", "unfinished": "carry"}}


def charged(world):
    return [(lease.role, lease.t0_s, lease.t1_s, dict(lease.charges)) for lease in world.leases.all]


def assert_nobody_notices_watchers(made):
    plain, failed = outcome(made)
    assert plain is not None or failed.startswith(("nothing can happen", "no batch in sight"))
    for wanted in (EVERY_FINISH, EVERY_GROUP):
        watched, _ = outcome(made, [Watch(wanted)])
        assert (plain is None) == (watched is None)
        if plain is not None:
            finding = same("INV-7", f"with {wanted}", tables(plain), tables(watched))
            assert finding.ok, finding
            assert (plain.end_s, plain.steps, plain.spans) == (watched.end_s, watched.steps, watched.spans)
            assert charged(plain) == charged(watched)
    return plain


@pytest.mark.parametrize("asynchronous", [False, True])
def test_inv_7_ends_of_two_replicas_at_one_instant(asynchronous):
    """At 3 s both replicas end a trajectory, and the round has enough: the end on the other one counts."""
    lengths = [(1, 1, 1), (1, 1, 1), (1, 1, 2), (1, 1, 1)]
    limits = FEW | {"max_num_seqs": 2, "async_scheduling": asynchronous}
    made = setup(FIRST_K | {"allocation": SPLIT}, lengths, steps=1, prompts=2, samples=3, limits=limits)
    world = assert_nobody_notices_watchers(made)
    assert world.trajectories.rows["t_end_s"].tolist() == [1.0, 1.0, 2.0, 2.0, 3.0, 1.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_inv_7_a_round_closes_under_a_step_that_ends_a_trajectory_of_a_dropped_group(asynchronous):
    policies = {
        "admission": {"use": "fixed_batch", "over_issue": 3},
        "round_end": {"use": "first_k", "unfinished": "drop"},
    }
    lengths = [(1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 4)]
    limits = FEW | {"max_num_seqs": 2, "async_scheduling": asynchronous}
    made = setup(policies, lengths, gpus=2, steps=1, prompts=2, samples=3, limits=limits, hand=False)
    assert assert_nobody_notices_watchers(made) is not None


def test_inv_7_a_last_token_is_in_flight_at_the_swap():
    policies = {
        "allocation": SPLIT,
        "admission": {"use": "fixed_batch", "ahead": 1},
        "weight_sync": "in_flight",
        "readiness": {"use": "streaming", "micro_groups": 1},
    }
    limits = FEW | {"max_num_seqs": 5, "async_scheduling": True}

    def made(tokens):
        lengths = [(1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, tokens)]
        train = {"logprob": True}
        return setup(policies, lengths, steps=1, prompts=2, samples=3, limits=limits, hand=False, train=train)

    def at_the_swap(world):
        return world.trajectories.rows["t_end_s"][11] == world.end_s

    # Costs are those of a profile: the length that ends there follows from them.
    tokens = next(tokens for tokens in range(1, 160) if at_the_swap(run(made(tokens))))
    assert at_the_swap(assert_nobody_notices_watchers(made(tokens)))


@given(drawn=modes(), data=st.data())
@settings(max_examples=100, deadline=None)
def test_inv_1_to_7_and_12_in_every_mode_with_full_and_slow_replicas(drawn, data):
    policies, mode, lengths = drawn
    draw = data.draw
    train = {
        "mini_batches": mode.mini_batches,
        "epochs": mode.epochs,
        "publish": "mini_batch" if mode.publish_each else "step",
        "validate_every": draw(st.integers(0, 2)),
        "validation_prompts": draw(st.integers(1, 5)),
        "checkpoint_every": draw(st.integers(0, 1)),
        "checkpoint_s": 1.5,
        "warm_up_s": draw(st.sampled_from([0.0, 3.3])),
        "logprob": True,
    }
    limits = {
        "max_num_seqs": draw(st.sampled_from([2, 5, 256])),
        "max_num_batched_tokens": draw(st.sampled_from([256, 2048])),
        "max_model_len": 176,
        "num_blocks": draw(st.sampled_from([11, 30, 2000])),
        "async_scheduling": draw(st.booleans()),
    }
    made = setup(
        policies,
        lengths,
        gpus=2 if mode.shared else 4,
        steps=mode.steps,
        prompts=mode.groups,
        samples=mode.samples,
        reward_s=0.37 * mode.reward_s,
        train=train,
        limits=limits,
        hand=draw(st.booleans()),
    )
    record = made.config.record.model_copy(update={"segments": draw(st.booleans())})
    made = replace(made, config=made.config.model_copy(update={"record": record}))
    world = assert_nobody_notices_watchers(made)
    if world is not None:
        found = check(
            tables(world),
            gpus=made.config.cluster.gpus,
            span_s=world.end_s,
            hard_eta=made.policies.hard_eta,
            streams=made.streams,
            leases=world.leases.all,
        )
        assert [str(finding) for finding in found if not finding.ok] == []

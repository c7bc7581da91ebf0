"""Every mode with a handful of trajectories, by hand. A trajectory of n tokens takes n seconds from its start."""

import numpy as np
import pytest

from rollsim.policies.base import EVERY_GROUP
from rollsim.simulator.trajectories import (
    DISCARDED,
    NO_SIGNAL,
    NOT_YET,
    ROUND_OVER,
    STALE,
    STOPPED,
    TRAINED,
    VALIDATION,
)
from tests.simulator.world.small import PULL_S, SPLIT, run, setup


def begins(world):
    return [step["t0_s"] for step in world.steps]


def ages(world, group):
    rows = world.trajectories.rows
    mine = rows[rows["group"] == group]
    return (mine["version_trained"] - mine["version_start"]).tolist()


def ends(world, group):
    rows = world.trajectories.rows
    return rows["t_end_s"][rows["group"] == group].tolist()


LENGTHS = [(3, 5), (4, 10)]


def test_synchronous_colocated_even_split():
    """Generation 10, switch 1, training 10, sync 2, switch 1: 24 s a step. Groups 0 and 1 on a replica each."""
    world = run(setup({"routing": "even_split"}, LENGTHS, gpus=2))
    assert begins(world) == [10.0, 34.0, 58.0]
    assert world.end_s == 72.0
    assert ends(world, 0) == [3.0, 5.0]
    assert ends(world, 1) == [4.0, 10.0]
    assert world.trajectories.rows["replica"][:4].tolist() == [0, 0, 1, 1]
    assert [(step["weight_sync_s"], step["switch_s"]) for step in world.steps] == [(2.0, 2.0)] * 3
    assert ages(world, 5) == [0, 0]


def test_synchronous_colocated_least_load():
    world = run(setup({"routing": "least_load"}, LENGTHS, gpus=2))
    assert world.trajectories.rows["replica"][:4].tolist() == [0, 1, 0, 1]
    assert world.end_s == 72.0


def test_synchronous_disaggregated():
    """10 generation, 10 training, 2 sync; no switch."""
    world = run(setup({"allocation": SPLIT}, LENGTHS))
    assert begins(world) == [10.0, 32.0, 54.0]
    assert world.end_s == 66.0


def test_one_step_off():
    """While batch k trains for 10 s, batch k + 1 generates for 10 s; then 2 s of sync."""
    world = run(setup({"allocation": SPLIT, "admission": {"use": "fixed_batch", "ahead": 1}}, LENGTHS))
    assert begins(world) == [10.0, 22.0, 34.0]
    assert world.end_s == 46.0
    assert [ages(world, group)[0] for group in range(6)] == [0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("keep_kv", [True, False])
def test_in_flight(keep_kv):
    """Groups 2 and 3 have 20 of 26 tokens when the weights come at 20; they go on at 22 and end at 28."""
    policies = {
        "allocation": SPLIT,
        "admission": {"use": "staleness_quota", "eta": 1},
        "weight_sync": {"use": "in_flight", "keep_kv": keep_kv},
        "routing": "least_load",
    }
    world = run(setup(policies, [(10, 10), (10, 10), (26, 26), (26, 26)], steps=2))
    assert begins(world) == [10.0, 28.0]
    assert world.end_s == 40.0
    rows = world.trajectories.rows[4:8]
    assert rows["t_end_s"].tolist() == [28.0] * 4
    assert rows["version_start"].tolist() == [0] * 4
    assert rows["version_end"].tolist() == [1] * 4
    assert rows["version_trained"].tolist() == [1] * 4
    # The prompt of 16 and 20 responses so far, the last of which has no KV yet: 36 tokens are prefilled again.
    assert rows["recomputed_tokens"].tolist() == [0 if keep_kv else 36] * 4


def test_eta_bounded_with_drain():
    """The pool drains at 26, the weights are there at 28; groups 4 and 5 run from 28 to 38, while the trainer does."""
    policies = {"allocation": SPLIT, "admission": {"use": "staleness_quota", "eta": 1}, "routing": "least_load"}
    world = run(setup(policies, [(10, 10), (10, 10), (26, 26), (26, 26)], steps=2))
    assert begins(world) == [10.0, 28.0]
    assert world.end_s == 40.0


def test_partial_rollouts_are_carried():
    """Group 1 is cut at 4 with 4 tokens, resumed at 18, cut again at 22 with 8."""
    policies = {
        "admission": {"use": "fixed_batch", "over_issue": 1},
        "round_end": {"use": "first_k", "unfinished": "carry"},
        "routing": "least_load",
    }
    world = run(setup(policies, [(4, 4), (20, 20), (4, 4), (4, 4)], gpus=2, prompts=1, steps=2))
    assert begins(world) == [4.0, 22.0]
    rows = world.trajectories.rows
    carried = rows[rows["group"] == 1]
    assert carried["output_tokens"].tolist() == [8, 8]
    assert carried["attempts"].tolist() == [2, 2]
    assert carried["fate"].tolist() == [NOT_YET] * 2
    assert carried["version_start"].tolist() == [0, 0]
    assert carried["recomputed_tokens"].tolist() == [20, 20], "each on a replica of its own: 16 and 4 tokens"
    assert rows["fate"][rows["group"] == 2].tolist() == [TRAINED] * 2


def test_partial_rollouts_are_dropped():
    policies = {
        "admission": {"use": "fixed_batch", "over_issue": 1},
        "round_end": {"use": "first_k", "unfinished": "drop"},
        "routing": "least_load",
    }
    world = run(setup(policies, [(4, 4), (20, 20), (4, 4), (20, 20)], gpus=2, prompts=1, steps=2))
    assert begins(world) == [4.0, 22.0]
    rows = world.trajectories.rows
    for group in (1, 3):
        assert rows["fate"][rows["group"] == group].tolist() == [DISCARDED] * 2
        assert rows["reason"][rows["group"] == group].tolist() == [ROUND_OVER] * 2
        assert rows["output_tokens"][rows["group"] == group].tolist() == [4, 4]
    assert world.view.groups_dropped == 2


def test_partial_rollouts_are_kept():
    """Stopped at 4 with 4 tokens, on again at 16 with new weights: 16 left, group 1 ends at 32; group 2 at 20."""
    policies = {
        "allocation": SPLIT,
        "admission": {"use": "fixed_batch", "over_issue": 1},
        "round_end": {"use": "first_k", "unfinished": "keep"},
        "weight_sync": {"use": "in_flight", "keep_kv": True},
        "routing": "least_load",
    }
    world = run(setup(policies, [(4, 4), (20, 20), (30, 30), (4, 4)], prompts=1, steps=2))
    assert begins(world) == [4.0, 32.0]
    assert ends(world, 1) == [32.0, 32.0]
    assert ages(world, 1) == [1, 1]


def test_micro_batches_stream_into_the_trainer():
    """Group 0 trains from 4 to 14, group 1, ready at 10, from 14 to 24; the weights are there at 26."""
    policies = {"allocation": SPLIT, "readiness": {"use": "streaming", "micro_groups": 1}}
    world = run(setup(policies, [(4, 4), (10, 10)], steps=2))
    assert begins(world) == [4.0, 30.0]
    assert world.end_s == 52.0
    assert world.view.updates == 2


def test_relays():
    """Replicas pull when they are empty: groups 4 and 5 wait for 3 s and have the first new version."""
    policies = {
        "allocation": SPLIT,
        "admission": [{"use": "replica_batch", "groups": 1}, {"use": "backlog", "batches": 4}],
        "weight_sync": "relay",
        "routing": "least_load",
    }
    world = run(setup(policies, [(10, 10)], steps=3))
    assert begins(world) == [10.0, 22.0, 34.0]
    rows = world.trajectories.rows
    later = rows[np.isin(rows["group"], (6, 7))]
    assert later["t_submit_s"].tolist() == [30.0] * 4
    assert later["t_start_s"].tolist() == [30.0 + PULL_S] * 4
    assert later["version_start"].tolist() == [1] * 4
    assert ages(world, 4) == [2, 2]


def test_dynamic_sampling_refills():
    """Group 0 has no signal: at 10, when both are there, it is dropped and prompt 2 takes its place until 15."""
    rewards = ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0))
    world = run(setup({"selection": "drop_zero_variance"}, [(4, 4), (10, 10), (5, 5)], rewards, gpus=2, steps=1))
    assert begins(world) == [15.0]
    rows = world.trajectories.rows
    assert rows["fate"].tolist() == [DISCARDED] * 2 + [TRAINED] * 4
    assert rows["reason"][:2].tolist() == [NO_SIGNAL] * 2
    assert rows["prompt"].tolist() == [0, 0, 1, 1, 2, 2]


def test_stale_groups_are_dropped():
    """Group 1 misses two versions; with eta 1 it is discarded when it ends."""
    policies = {
        "allocation": SPLIT,
        "admission": {"use": "concurrency", "trajectories": 4},
        "selection": {"use": "drop_stale", "eta": 1},
        "weight_sync": {"use": "in_flight", "keep_kv": True},
        "routing": "least_load",
    }
    world = run(setup(policies, [(4, 4), (40, 40), (4, 4)] + [(4, 4)] * 20, prompts=1, steps=5))
    rows = world.trajectories.rows
    assert rows["fate"][rows["group"] == 1].tolist() == [DISCARDED] * 2
    assert rows["reason"][rows["group"] == 1].tolist() == [STALE] * 2


def test_rewards_take_their_time():
    world = run(setup({}, LENGTHS, gpus=2, steps=1, reward_s=2.5))
    assert begins(world) == [12.5]


def test_validation_checkpoint_and_warm_up():
    """Warm-up 7; step 24 with 5 of checkpoint; validation of one prompt with 3 tokens, which nobody trains on."""
    train = {
        "warm_up_s": 7.0, "checkpoint_every": 1, "checkpoint_s": 5.0,
        "validate_every": 2, "validation_prompts": 1, "validation_samples": 1,
    }  # fmt: skip
    world = run(setup({}, LENGTHS, gpus=2, steps=2, train=train))
    assert begins(world) == [17.0, 46.0]
    assert world.end_s == 7 + 2 * 29 + 3
    rows = world.trajectories.rows
    assert rows["reason"].tolist() == [-1] * 8 + [VALIDATION]
    ledger = {}
    for lease in world.leases.all:
        for (category, _), seconds in lease.charges.items():
            ledger[category] = ledger.get(category, 0.0) + seconds * lease.count
    assert ledger["checkpoint"] == 2 * 5 * 2
    assert ledger["warm_up"] == 7 * 2


def test_weights_after_each_mini_batch():
    """Two mini-batches of 10, each followed by 2 of sync: versions 1 and 2 in the first step."""
    policies = {"allocation": SPLIT, "weight_sync": {"use": "in_flight", "keep_kv": True}}
    world = run(setup(policies, LENGTHS, steps=2, train={"mini_batches": 2, "publish": "mini_batch"}))
    assert [step["version"] for step in world.steps] == [2, 4]
    assert begins(world)[0] == 10.0
    assert world.view.updates == 4
    assert world.steps[0]["train_s"] == 20.0
    assert world.steps[0]["weight_sync_s"] == 4.0


def test_early_stop():
    """Looked at every 6 s: at 6 the longest of group 1 has 6 tokens, above the cap of 5; the other three train."""
    policies = {"early_stop": {"use": "token_cap", "tokens": 5, "every_s": 6.0}, "routing": "least_load"}
    world = run(setup(policies, [(3, 5), (4, 10)], gpus=2, steps=1))
    rows = world.trajectories.rows
    assert begins(world) == [6.0]
    assert rows["reason"].tolist() == [-1, -1, -1, STOPPED]
    assert rows["output_tokens"].tolist() == [3, 5, 4, 6]
    assert world.steps[0]["trajectories"] == 3


def test_repack():
    """At 6 each replica has one left; replica 0's goes to replica 1, where one step makes its KV and its next token."""
    policies = {"migration": {"use": "repack", "at_most": 2, "every_s": 6.0}, "routing": "least_load"}
    world = run(setup(policies, [(3, 4), (10, 12)], gpus=2, steps=1))
    rows = world.trajectories.rows
    assert rows["replica"].tolist() == [0, 1, 1, 1]
    assert rows["attempts"].tolist() == [0, 0, 1, 0]
    assert rows["t_end_s"].tolist() == [3.0, 4.0, 10.0, 12.0]
    assert rows["recomputed_tokens"].tolist() == [0, 0, 16 + 6, 0]
    assert begins(world) == [12.0]


def test_speculation_where_the_batch_is_small():
    """Two tokens a step for who is alone: replica 0's last has 1 left at 3 s and ends at 4; replica 1's 5 at 5 s."""
    decoding = {"use": "batch_gated", "drafts": 1, "acceptance": 1.0, "at_most": 1}
    world = run(setup({"decoding": decoding, "routing": "least_load"}, [(3, 5), (4, 10)], gpus=2, steps=1))
    assert world.trajectories.rows["t_end_s"].tolist() == [3.0, 5.0, 4.0, 8.0]
    assert begins(world) == [8.0]


def test_speculation_by_its_acceptance():
    """Leviathan's mean for 3 drafts at 0.5 is 1.875 tokens a step: 1 in the first, 15 more in 8."""
    decoding = {"use": "batch_gated", "drafts": 3, "acceptance": 0.5, "at_most": 1}
    world = run(setup({"decoding": decoding}, [(16, 1)], gpus=2, steps=1, prompts=1))
    assert world.trajectories.rows["t_end_s"].tolist() == [9.0, 1.0]


def test_a_round_ends_when_enough_groups_stay_selected():
    """Group 0 has no spread of rewards and counts for nothing; at 5 s only group 1 does, at 9 group 2 makes two.

    Group 4 takes its place at 3 s, with the same end; group 5 takes that one's at 6, and is cut at 9.
    """
    policies = {
        "admission": {"use": "fixed_batch", "over_issue": 2},
        "round_end": "first_k",
        "selection": "drop_zero_variance",
        "routing": "least_load",
    }
    world = run(setup(policies, [(2, 3), (4, 5), (8, 9), (20, 30)], [(1, 1), (0, 1), (0, 1), (0, 1)], gpus=2, steps=1))
    assert begins(world) == [9.0]
    rows = world.trajectories.rows
    assert rows["fate"][::2].tolist() == [DISCARDED, TRAINED, TRAINED, NOT_YET, DISCARDED, NOT_YET]
    assert rows["reason"][0] == NO_SIGNAL


def test_a_round_may_leave_nothing_on_any_replica():
    """All that ran is carried over while single finishes matter: the pool has nothing to look forward to."""
    policies = {
        "admission": {"use": "fixed_batch", "over_issue": 1},
        "round_end": "first_k",
        "routing": "least_load",
        "decoding": {"use": "batch_gated", "drafts": 1, "acceptance": 1.0, "at_most": 1},
    }
    world = run(setup(policies, [(3, 5), (4, 10), (30, 30)], gpus=2, steps=2))
    assert begins(world)[0] == 10.0
    assert len(world.steps) == 2


def test_a_round_whose_batch_is_already_there_does_not_begin():
    """Over-issued group 1 ends at 1 s with group 0: step 1 finds its batch buffered, and generation goes on at 29."""
    policies = {"admission": {"use": "fixed_batch", "over_issue": 1}, "round_end": "first_k", "routing": "least_load"}
    world = run(setup(policies, [(1,), (1,), (40,)], gpus=2, prompts=1, samples=1, steps=3))
    assert begins(world) == [1.0, 15.0, 30.0]
    assert world.steps[1]["generate_s"] == 0.0
    assert world.trajectories.rows["t_submit_s"].tolist() == [0.0, 0.0, 29.0, 29.0]


def test_groups_are_heard_of_while_the_pool_drains():
    """Training ends at 13 s and the pool drains until 23, but the reward of group 2 is heard of when it comes."""
    asked = []

    class Listens:
        subscription = EVERY_GROUP

        def look(self, view):
            asked.append(view.now_s)

    policies = {"allocation": SPLIT, "weight_sync": "drain", "admission": {"use": "fixed_batch", "ahead": 1}}
    made = setup(policies, [(1,), (1,), (10,), (20,)], prompts=2, samples=1, steps=1, reward_s=2.0)
    world = run(made, [Listens()])
    assert world.steps[0]["drain_s"] == 10.0
    assert asked == [3.0, 15.0, 25.0]

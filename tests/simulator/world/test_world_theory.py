"""Worlds against theory: bubble, Amdahl's law, Little's law, and the staleness of an asynchronous loop."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from rollsim.simulator.costs import StepCost
from rollsim.simulator.train_cost import Gradients
from tests.simulator.world.small import SPLIT, SWITCH_S, SYNC_S, TRAIN_S, Fixed, Steady, run, setup

WIDE = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
GENERATION = ("prefill", "decode", "reprefill", "host")


@dataclass(frozen=True)
class Timed(Steady):
    """A train pool that takes so many seconds for a step."""

    train_s: float

    def gradients(self, tokens):
        """As it says."""
        return Gradients(self.train_s, 0.0)


def charges(world, role):
    """Seconds by (category, cause) of all leases of a role, summed over GPUs."""
    found = {}
    for lease in world.leases.all:
        if lease.role == role:
            for key, seconds in lease.charges.items():
                found[key] = found.get(key, 0.0) + seconds * lease.count
    return found


@pytest.mark.parametrize("routing", ["even_split", "least_load"])
@pytest.mark.parametrize("seed", range(3))
def test_bubble_is_one_less_busy_over_replicas_times_makespan(routing, seed):
    """Systems_rollout section 0: one synchronous round; a replica is busy until its longest trajectory ends."""
    lengths = np.random.default_rng(seed).integers(1, 300, (8, 2)).tolist()
    world = run(setup({"routing": routing}, lengths, gpus=4, prompts=8, steps=1))
    rows = world.trajectories.rows
    busy = [int(rows["target_tokens"][rows["replica"] == i].max()) for i in range(4)]
    makespan = max(busy)
    assert world.steps[0]["t0_s"] == makespan
    ledger = charges(world, "rollout")
    generation = sum(seconds for (category, _), seconds in ledger.items() if category in GENERATION)
    assert generation == sum(busy)
    bubble = sum(seconds for (category, _), seconds in ledger.items() if category == "tail_bubble")
    assert bubble / (4 * makespan) == pytest.approx(1 - sum(busy) / (4 * makespan), abs=1e-9)


def steps_of(made, seconds) -> StepCost:
    """Every engine step takes so many seconds."""
    return StepCost.affine(
        made.limits.max_num_batched_tokens * made.limits.lockstep_ranks, made.limits.max_num_seqs, base_s=seconds
    )


@pytest.mark.parametrize("speedup", [2.0, 4.0, 16.0])
def test_a_faster_rollout_speeds_a_synchronous_step_up_by_amdahls_law(speedup):
    """1 / (1 - share + share / speedup), with the share of generation in the step of the slower one."""
    made = setup({}, [(3, 5), (4, 40), (7, 20)], gpus=2, steps=6)
    slow, fast = run(made), run(replace(made, step_cost=steps_of(made, 1 / speedup)))
    share = sum(step["generate_s"] for step in slow.steps) / slow.end_s
    assert 0.5 < share < 0.8
    assert slow.end_s / fast.end_s == pytest.approx(1 / (1 - share + share / speedup), rel=1e-12)


def test_steps_of_short_and_long_rounds_take_their_mean():
    """(n short + long) / (n + 1): three rounds of 10 s to one of 90 s."""
    world = run(setup({"allocation": SPLIT}, [(10,), (10,), (10,), (90,)], samples=1, prompts=1, steps=8))
    rest = TRAIN_S + SYNC_S
    assert world.end_s / 8 == (3 * (10 + rest) + (90 + rest)) / 4


@pytest.mark.parametrize("train_s", [4.0, 30.0, 100.0])
def test_one_step_off_takes_as_long_as_the_slower_side(train_s):
    """Generation of 30 s and training overlap, all but the first of the one and the last of the other."""
    made = setup({"allocation": SPLIT, "admission": {"use": "fixed_batch", "ahead": 1}}, [(30, 20)], steps=7)
    world = run(replace(made, train_cost=Timed(train_s)))
    assert np.diff([step["t0_s"] for step in world.steps]).tolist() == [max(30.0, train_s) + SYNC_S] * 6
    serial = run(replace(made, train_cost=Timed(train_s), policies=setup({"allocation": SPLIT}, [(1,)]).policies))
    assert np.diff([step["t0_s"] for step in serial.steps]).tolist() == [30.0 + train_s + SYNC_S] * 6


def test_colocated_step_is_the_sum_of_its_parts():
    world = run(setup({}, [(30, 20)], gpus=2, steps=4))
    assert world.end_s == 4 * (30 + SWITCH_S + TRAIN_S + SYNC_S + SWITCH_S)
    ledger = charges(world, "train")
    assert ledger["forward_backward", None] == 4 * TRAIN_S * 2
    assert ledger["sync", "new weights"] == 4 * SYNC_S * 2
    assert ledger["switch", "to training"] == ledger["switch", "to generation"] == 4 * SWITCH_S * 2
    assert sum(ledger.values()) + sum(charges(world, "rollout").values()) == 2 * world.end_s


def spread(low, high, samples):
    return np.random.default_rng(5).integers(low, high, (997, samples)).tolist()


def asynchronous(lengths, *, trajectories, groups, samples, train_s, steps, more=()):
    """Rollouts at a constant concurrency into a trainer that takes the oldest groups first; syncs take no time."""
    policies = {
        "allocation": SPLIT,
        "admission": [{"use": "concurrency", "trajectories": trajectories}, *more],
        "weight_sync": {"use": "in_flight", "keep_kv": True},
        "routing": "least_load",
    }
    made = setup(policies, lengths, prompts=groups, samples=samples, steps=steps, limits=WIDE)
    return run(replace(made, train_cost=Timed(train_s), sync_cost=Fixed(sync_s=0.0)))


def group_ages(world, after_step):
    """Staleness of the groups that later steps trained: version of training less their oldest one."""
    rows = world.trajectories.rows
    rows = rows[rows["step_trained"] >= after_step]
    first = np.flatnonzero(np.diff(rows["group"], prepend=-1))
    return rows["version_trained"][first] - np.minimum.reduceat(rows["version_start"], first)


@pytest.mark.parametrize(
    ("concurrency", "batch", "samples", "rho"),
    [(120, 240, 8, 0.63), (240, 120, 8, 0.92), (30, 60, 1, 0.3), (60, 20, 1, 0.7)],
)
def test_mean_staleness_is_that_of_the_queue_formula(concurrency, batch, samples, rho):
    """C * tail / B + rho, where training keeps up (rho < 1): tail = E[longest of a group] / E[length].

    The first two cases are published runs of fully asynchronous training (Applied Compute, 2026): 1.34 and 3.78 by the
    formula, 1.26 and 3.59 measured.
    """
    lengths = spread(46, 154, samples)
    mean, tail = np.mean(lengths), np.max(lengths, axis=1).mean() / np.mean(lengths)
    step_s = batch * mean / concurrency
    # A group starts when all of it fits: with half a group above the cap, the mean under way is C.
    cap = concurrency + (samples - 1) // 2
    world = asynchronous(
        lengths, trajectories=cap, groups=batch // samples, samples=samples, train_s=rho * step_s, steps=50
    )
    predicted = concurrency * tail / batch + rho
    if samples == 8:
        assert predicted == pytest.approx({120: 1.34, 240: 3.78}[concurrency], abs=0.02)
    assert group_ages(world, 20).mean() == pytest.approx(predicted, abs=0.1)


@pytest.mark.parametrize("batches", [1, 2, 4])
def test_a_slow_trainer_sees_what_waits_before_it(batches):
    """Little's law, rho > 1: `batches` batches under way or buffered are consumed at one batch a version."""
    world = asynchronous(
        spread(10, 30, 2),
        trajectories=200,
        groups=8,
        samples=2,
        train_s=90.0,
        steps=30,
        more=[{"use": "backlog", "batches": batches}],
    )
    assert np.diff([step["t0_s"] for step in world.steps])[5:].tolist() == [90.0] * 24
    assert set(group_ages(world, 10).tolist()) == {batches}

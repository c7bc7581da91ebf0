"""What the trainer does: wait for groups, train on them, publish, and from time to time validate and checkpoint."""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from rollsim.policies.readiness_streaming import Streaming
from rollsim.simulator import answers
from rollsim.simulator.trainer import Part, gradient_parts, pass_parts, update_parts
from rollsim.simulator.trajectories import TRAINED

if TYPE_CHECKING:
    from rollsim.simulator.config import TrainSection
    from rollsim.simulator.setup import Setup
    from rollsim.simulator.world import World

Process = Generator[simpy.Event, Any, None]


def training(world: "World") -> Process:
    """The life of the trainer, from the first lease to the last version."""
    train, lane, view = world.setup.config.train, world.lane, world.view
    shared = world.setup.shares.shared
    if not shared:
        lane.take(0.0)
    view.groups_missing = view.groups_per_step
    world.pool.lease(world.leases, 0.0)
    if train.warm_up_s:
        yield from _warm_up(world)
    world.begin_round()
    for step in range(train.steps):
        yield from _step(world, step, last=step == train.steps - 1)
        if train.validate_every and (step + 1) % train.validate_every == 0:
            yield from _validate(world, step)
        world.steps[-1]["ended_s"] = view.now_s
        if world.on_step is not None:
            world.on_step(len(world.steps))


def cadence(setup: "Setup") -> tuple[int, int]:
    """Versions that a train step publishes, and groups that it takes at each: all at the first, unless they stream."""
    train, readiness = setup.config.train, setup.policies.readiness
    groups = train.prompts_per_step
    if train.publish == "step":
        return 1, groups
    if not isinstance(readiness, Streaming) or readiness.micro_groups >= groups:
        return train.mini_batches * train.epochs, groups
    pieces = -(-_groups_per_update(train) // readiness.micro_groups)
    return -(-groups // (pieces * readiness.micro_groups)), pieces * readiness.micro_groups


def _groups_per_update(train: "TrainSection") -> int:
    return -(-train.prompts_per_step // train.mini_batches)


def _warm_up(world: "World") -> Process:
    """Engines and trainer start; nothing is generated."""
    seconds = world.setup.config.train.warm_up_s
    world.pool.timeline.mark(0.0, "warm_up", None)
    yield world.after(seconds)
    world.lane.until(world.view.now_s, "warm_up", None)
    world.span("trainer", "warm-up", 0.0)


class _Row:
    """What a train step adds up to, as of the table ``steps``."""

    def __init__(self, step: int, t_s: float) -> None:
        self.step, self.asked_s = step, t_s
        self.t0_s = self.t1_s = t_s
        self.generate_s = self.train_s = self.logprob_s = self.sync_s = self.switch_s = self.drain_s = 0.0
        self.checkpoint_s = 0.0
        self.numbers: list[np.ndarray] = []


def _step(world: "World", step: int, *, last: bool) -> Process:
    """One train step: its mini-batches, as they come, and the new weights."""
    view, train = world.view, world.setup.config.train
    row = _Row(step, view.now_s)
    begun = False
    per_update = _groups_per_update(train)
    since_update = 0
    while view.groups_missing:
        asked_s = view.now_s
        units = yield from world.wait_for_groups()
        world.lane.until(view.now_s, "starved", "the batch is not ready")
        row.generate_s += view.now_s - asked_s
        if not begun:
            row.t0_s = view.now_s
            begun = True
            if world.setup.shares.shared:
                yield from switch(world, row, "to training")
        numbers = world.rollout.take(units)
        rows = world.trajectories.rows
        rows["fate"][numbers], rows["step_trained"][numbers] = TRAINED, step
        rows["version_trained"][numbers] = view.version
        row.numbers.append(numbers)
        if not world.setup.shares.shared:
            world.admit()
        view.groups_missing -= len(units)
        tokens = rows["prompt_tokens"][numbers] + rows["output_tokens"][numbers]
        passes = pass_parts(world.setup.train_cost, tokens, world.setup.roles)
        row.logprob_s += sum(part.seconds for part in passes)
        yield from _spend(world, row, passes, f"step {step}")
        whole = len(units) == view.groups_per_step
        pieces = np.array_split(tokens, train.mini_batches) * train.epochs if whole else [tokens]
        for i, piece in enumerate(pieces):
            yield from _spend(
                world, row, gradient_parts(world.setup.train_cost, piece, world.setup.roles), f"step {step}"
            )
            since_update += len(units)
            if not (whole or since_update >= per_update or not view.groups_missing):
                continue
            since_update = 0
            yield from _spend(world, row, update_parts(world.setup.train_cost, world.setup.roles), f"step {step}")
            view.updates += 1
            ends = i == len(pieces) - 1 and not view.groups_missing
            if train.publish == "mini_batch" and not ends:
                yield from publish(world, row, admits=True)
    row.t1_s = view.now_s
    if train.checkpoint_every and (step + 1) % train.checkpoint_every == 0:
        seconds = world.setup.checkpoint_s
        row.checkpoint_s = seconds
        yield from _spend(world, None, [Part("checkpoint", None, seconds)], "checkpoint")
    validates = train.validate_every and (step + 1) % train.validate_every == 0
    done = last and not validates
    yield from publish(world, row, admits=not last and not validates, ends_step=True, last=done)
    _note(world, row)


def _spend(world: "World", row: "_Row | None", parts: list[Part], name: str) -> Process:
    t0_s = world.view.now_s
    world.lane.spend(parts)
    seconds = sum(part.seconds for part in parts)
    if seconds:
        yield world.after(seconds)
        world.span("trainer", name, t0_s)
    if row is not None:
        row.train_s += seconds


def switch(world: "World", row: _Row, name: str) -> Process:
    """Shared GPUs leave generation for training, or the other way round."""
    view = world.view
    if name == "to training":
        began_s = view.now_s
        yield from world.drain()
        row.generate_s += view.now_s - began_s
        world.pool.release(world.leases, view.now_s)
        world.lane.take(view.now_s)
    t0_s = view.now_s
    seconds = world.setup.sync_cost.switch_s
    world.lane.spend([Part("switch", name, seconds)])
    yield world.after(seconds)
    world.span("trainer", f"switch {name}", t0_s)
    row.switch_s += seconds


def publish(world: "World", row: _Row, *, admits: bool, ends_step: bool = False, last: bool = False) -> Process:
    """Bring the new weights to the replicas as the policy says; the trainer takes part."""
    view, pool, lane, rollout = world.view, world.pool, world.lane, world.rollout
    shared, cost = world.setup.shares.shared, world.setup.sync_cost
    world.look()
    plan = world.setup.policies.weight_sync.plan(view)
    answers.word("weight_sync", plan.how, ("drain", "interrupt", "relay"))
    if plan.how == "drain" and not shared and not rollout.hold:
        began_s = view.now_s
        yield from world.drain()
        row.drain_s += view.now_s - began_s
        lane.until(view.now_s, "starved", "waits until the pool has drained")
    relayed = plan.how == "relay"
    if not shared and not relayed:
        pool.pause(view.now_s, "new weights")
    t0_s = view.now_s
    seconds = cost.push_s if relayed else cost.sync_s
    lane.spend([Part("sync", "new weights", seconds)])
    yield world.after(seconds)
    world.span("weights", f"version {view.version + 1}", t0_s)
    if shared and ends_step:
        yield from switch(world, row, "to generation")
        if not last:
            lane.release(view.now_s)
            pool.lease(world.leases, view.now_s)
    world.look()
    view.version += 1
    if relayed:
        world.pull()
    else:
        pool.swap(view.now_s, view.version, keep_kv=plan.keep_kv)
        view.replica_versions = [view.version] * pool.replicas
    if ends_step:
        view.steps += 1
        view.groups_missing = 0 if last else view.groups_per_step
    row.sync_s += seconds
    rollout.hold = True
    if admits:
        world.begin_round()


def _validate(world: "World", step: int) -> Process:
    """Generate answers to the validation prompts; the trainer waits."""
    train, view = world.setup.config.train, world.view
    t0_s = view.now_s
    world.rollout.validate(train.validation_prompts, train.validation_samples)
    yield from world.wait_until(lambda: not world.rollout.validating, validation=True)
    world.lane.until(view.now_s, "starved", "validation")
    world.span("validation", f"after step {step}", t0_s)
    world.steps[-1]["validation_s"] = view.now_s - t0_s
    if step + 1 < train.steps:
        world.begin_round()


def _note(world: "World", row: _Row) -> None:
    rows = world.trajectories.rows
    numbers = np.concatenate(row.numbers)
    world.steps.append(
        {
            "step": row.step,
            "version": world.view.version,
            "t0_s": row.t0_s,
            "t1_s": row.t1_s,
            "generate_s": row.generate_s,
            "published_s": world.view.now_s,
            "train_s": row.train_s - row.logprob_s,
            "logprob_s": row.logprob_s,
            "weight_sync_s": row.sync_s,
            "switch_s": row.switch_s,
            "drain_s": row.drain_s,
            "checkpoint_s": row.checkpoint_s,
            "validation_s": 0.0,
            "trajectories": len(numbers),
            "prompt_tokens": int(rows["prompt_tokens"][numbers].sum()),
            "output_tokens": int(rows["output_tokens"][numbers].sum()),
        }
    )

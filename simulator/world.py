"""The world: prompts, replicas, rewards, buffer, trainer and weights on one clock. Modes are settings of policies.

SimPy holds control events: the phases of training, publishing and switching, and the ticks of policies. Between two of
them the replicas run alone, and the world wakes at the finishes or the ends of groups that somebody waits for.
"""

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import simpy

from rollsim.policies.base import Subscription, Unit, Watcher
from rollsim.policies.compose import joined
from rollsim.policies.round_end_barrier import Barrier
from rollsim.simulator import answers
from rollsim.simulator.kernel import state
from rollsim.simulator.leases import Leases
from rollsim.simulator.pool import Pool
from rollsim.simulator.rollout import Rollout
from rollsim.simulator.setup import Setup
from rollsim.simulator.trainer import TrainLane
from rollsim.simulator.training import cadence, training
from rollsim.simulator.trajectories import FILTERED, NO_SIGNAL, STALE, Trajectories
from rollsim.simulator.view import Counts
from rollsim.simulator.world_failed import WorldFailed

Process = Generator[simpy.Event, Any, None]

# Batches that selection may drop in a row before the world gives up.
_HOPELESS = 100
# Ticks in a row with nothing under way, after which nothing is expected to happen any more.
_IDLE_TICKS = 10_000


class World:
    """One run.

    Parameters
    ----------
    setup : Setup
    watchers : sequence of Watcher
        Asked at every wake; they change nothing.
    on_step : callable, optional
        Called with the number of train steps done.

    Attributes
    ----------
    view : Counts
        What policies see.
    trajectories : Trajectories
    steps : list of dict
        A row for each train step, as of the table ``steps``.
    spans : list of (lane, name, t0_s, t1_s)
    wakes : int
        Times that the world looked at the pool.
    """

    def __init__(
        self, setup: Setup, watchers: Sequence[Watcher] = (), on_step: Callable[[int], None] | None = None
    ) -> None:
        self.setup, self.watchers, self.on_step = setup, watchers, on_step
        config = setup.config
        train = config.train
        versions, groups = cadence(setup)
        self.view = Counts(
            versions_per_step=versions,
            groups_per_version=groups,
            groups_per_step=train.prompts_per_step,
            samples_per_group=train.samples_per_prompt,
            total_gpus=config.cluster.gpus,
        )
        self.trajectories = Trajectories()
        self.leases = Leases(config.cluster.gpus)
        self.wanted, self._watched = joined(setup.policies.each()), joined(watchers)
        self._pulls = setup.policies.pulls
        self._every_finish = self.wanted.finishes > 0 or self._watched.finishes > 0
        self.pool = Pool(
            setup.limits,
            state.tables(setup.step_cost),
            setup.replicas,
            setup.gpus_per_replica,
            self.trajectories,
            every_finish=self._every_finish,
            log_spans=config.record.segments,
        )
        self.view.replica_loads = self.pool.loads
        self.view.replica_versions = [0] * setup.replicas
        self.rollout = Rollout(setup, self.view, self.pool, self.trajectories)
        first = 0 if setup.shares.shared else setup.shares.rollout_gpus
        self.lane = TrainLane(self.leases, first, setup.shares.train_gpus)
        self.steps: list[dict[str, float]] = []
        self.spans: list[tuple[str, str, float, float]] = []
        self.wakes = 0
        self.end_s = 0.0
        self.env = simpy.Environment(0.0)
        # Finishes and groups since policies, and since watchers, were asked.
        self._heard, self._seen = [0, 0], [0, 0]
        # What the trainer waits for: groups to train on, or that something is over.
        self._all_ended = False
        self._dropped_in_a_row = 0
        self._ready: simpy.Event | None = None
        self._over: Callable[[], bool] | None = None
        self._told = self.env.event()
        self._validates = False
        # The next tick is the how manyth, when, and how many there were in a row in which nothing was under way.
        self._ticks, self._tick_s, self._idle_ticks = 1, self.wanted.every_s or math.inf, 0
        self._wake_s: float | None = None

    def run(self) -> None:
        """Live until the last train step has published."""
        main = self.env.process(training(self))  # pyright: ignore[reportArgumentType] - it sees this file under two names
        while main.is_alive:
            control_s = self.env.peek()
            tick_s = self._tick_s
            limit_s = min(tick_s, control_s)
            wake_s = self._next_wake_s(limit_s)
            if wake_s <= limit_s and wake_s < math.inf:
                self._set_clock(wake_s)
                self._wake()
            elif control_s <= tick_s and control_s < math.inf:
                self._wake_s = None
                self.env.step()
            elif tick_s < math.inf and self._hopes(control_s):
                self._set_clock(tick_s)
                self._tick()
            else:
                raise WorldFailed(self._stuck())
        if isinstance(main.value, Exception):
            raise main.value
        self.end_s = self.view.now_s
        self._end_leases()

    def _stuck(self) -> str:
        view = self.view
        waits = "the pool to drain" if self._over is not None else f"{view.groups_missing} more groups"
        return (
            f"nothing can happen after {view.now_s:.6g} s: the trainer waits for {waits}, {view.groups_buffered} "
            f"groups are buffered, {view.groups_in_flight} under way, and admission starts no more"
        )

    def _end_leases(self) -> None:
        setup, end_s = self.setup, self.end_s
        self.rollout.collect()
        self.lane.until(end_s, "idle", None)
        self.lane.release(end_s)
        if self.pool.leased:
            self.pool.release(self.leases, end_s)
        used = setup.replicas * setup.gpus_per_replica
        if not setup.shares.shared and (left := setup.shares.rollout_gpus - used):
            lease = self.leases.take("idle", used, left, 0.0)
            lease.charge("idle", "fewer GPUs than a replica takes", end_s)
            self.leases.end(lease, end_s)
        self.rollout.leave()

    def _hopes(self, control_s: float) -> bool:
        """Whether something can still happen; if only policies can make it, they have so many ticks."""
        view = self.view
        stands = self.pool.paused or not (view.trajectories_in_flight or self.rollout.validating)
        alone = control_s == math.inf and stands and self.rollout.next_final_s() == math.inf
        self._idle_ticks = self._idle_ticks + 1 if alone else 0
        return self._idle_ticks <= _IDLE_TICKS

    def _tick(self) -> None:
        """Ask policies that want to be asked at fixed intervals."""
        self._ticks += 1
        self._tick_s = self._ticks * self.wanted.every_s
        self.look()
        self._ask()
        self._tell()

    def after(self, seconds: float) -> simpy.Event:
        """Event after so many seconds, at which the world's clock stands exactly there."""
        t_s = self.view.now_s + seconds
        timeout = self.env.timeout(max(0.0, t_s - self.env.now))
        # SimPy adds delays to its own clock, which rounds; a finish must be met at its own time.
        timeout.callbacks.insert(0, lambda _event: self._set_clock(t_s))  # pyright: ignore[reportOptionalMemberAccess]
        return timeout

    def _set_clock(self, t_s: float) -> None:
        self.view.now_s = max(self.view.now_s, t_s)

    def look(self) -> None:
        """Take in what has happened by now."""
        buffered = self.view.groups_buffered
        finishes = self.rollout.collect()
        groups = self.view.groups_buffered - buffered
        heard, seen = self._heard, self._seen
        heard[0] += finishes
        heard[1] += groups
        seen[0] += finishes
        seen[1] += groups
        if finishes and not self.view.trajectories_in_flight:
            self.offer("rollout")
        if groups and not self.view.groups_in_flight:
            self._all_ended = True
        self._wake_s = None

    def admit(self) -> None:
        """Let start what may start."""
        if self.rollout.admit():
            self._wake_s = None

    def wait_for_groups(self) -> Generator[simpy.Event, Any, list[Unit]]:
        """Groups for the trainer, as many as readiness says; their rest stays in the buffer."""
        self.look()
        batch = self._try_batch()
        if batch is None and not self.setup.shares.shared:
            self.offer("train")
        while batch is None:
            self._ready = self.env.event()
            batch = yield self._ready
        self._ready = None
        return batch

    def wait_until(self, over: Callable[[], bool], *, validation: bool = False) -> Process:
        """Until a wake of the world finds that it is over: when all trajectories have ended, or those of validation."""
        if not over():
            self._over, self._told, self._wake_s = over, self.env.event(), None
            self._validates = validation
            yield self._told
            self._over = None

    def drain(self) -> Process:
        """Start nothing more, until no trajectory generates and no step is in flight."""
        view = self.view
        self.rollout.hold = True
        yield from self.wait_until(lambda: not view.trajectories_in_flight and not self.rollout.validating)
        if (still_s := self.pool.still_s()) > view.now_s:
            yield self.after(still_s - view.now_s)
            self.look()

    def _try_batch(self) -> list[Unit] | None:
        """The trainer's next groups, if there are enough; drops what selection drops."""
        view, policies = self.view, self.setup.policies
        while True:
            wanted = policies.readiness.groups(view)
            count = answers.count("readiness", wanted, 1, view.groups_missing, "groups")
            if view.groups_buffered < count:
                return None
            chosen, dropped = self._sift()
            if len(chosen) >= count:
                self._dropped_in_a_row = 0
                return list(chosen[:count])
            if not dropped:
                return None
            self.admit()

    def _sift(self) -> tuple[Sequence[Unit], Sequence[Unit]]:
        """Groups of the buffer that selection would train on, and those that it has dropped."""
        buffer = self.rollout.buffer
        chosen, dropped = answers.selected(self.setup.policies.selection.select(self.view, tuple(buffer)), buffer)
        if dropped:
            self._drop(dropped)
        return chosen, dropped

    def _drop(self, units: Sequence[Unit]) -> None:
        """Drop groups; the reason that is recorded is the first that their numbers bear out."""
        self._dropped_in_a_row += len(units)
        if self._dropped_in_a_row > _HOPELESS * self.view.groups_per_step:
            dropped = f"selection dropped {self._dropped_in_a_row} groups in a row"
            raise WorldFailed(f"no batch in sight at {self.view.now_s:.6g} s: {dropped}")
        eta = self.setup.policies.hard_eta
        stale = [u for u in units if eta is not None and self.view.version - u.oldest_version > eta]
        flat = [u for u in units if u not in stale and u.reward_spread == 0]
        other = [u for u in units if u not in stale and u not in flat]
        for reason, some in ((STALE, stale), (NO_SIGNAL, flat), (FILTERED, other)):
            if some:
                self.rollout.drop(some, reason)

    def _next_wake_s(self, limit_s: float) -> float:
        """When the world must look at the pool next, if nothing else happens before `limit_s`.

        Now if something was heard of while the trainer acted, of which policies have not been told.
        """
        if self._owes_policies():
            return self.view.now_s
        final_s = self.rollout.next_final_s()
        if self._every_finish:
            finish_s = self.pool.next_finish_s(min(final_s, limit_s))
            return min(final_s, finish_s)
        if self._wake_s is None:
            self._wake_s = self._foreseen_wake_s()
        return self._wake_s

    def _foreseen_wake_s(self) -> float:
        view = self.view
        over_s = math.inf
        if self._over is not None:
            over_s = self.rollout.foreseen_end_s(validation=self._validates)
        ends = self.rollout.foreseen_finals_s()
        if not len(ends):
            return over_s
        if self.wanted.groups or self._watched.groups:
            return min(over_s, float(ends.min()))
        if self._ready is None:
            return min(over_s, float(ends.max()))
        missing = self.setup.policies.readiness.groups(view) - view.groups_buffered
        missing = min(max(1, missing), len(ends))
        return float(np.partition(ends, missing - 1)[missing - 1])

    def _wake(self) -> None:
        self.wakes += 1
        self.look()
        if self.watchers and _due(self._watched, self._seen):
            self._seen = [0, 0]
            for watcher in self.watchers:
                watcher.look(self.view)
        if self._owes_policies():
            self._ask()
        self._tell()

    def _owes_policies(self) -> bool:
        return self._all_ended or _due(self.wanted, self._heard)

    def _tell(self) -> None:
        """Tell the trainer if what it waits for is there."""
        if self._over is not None and not self._told.triggered and self._over():
            self._told.succeed()
        elif self._ready is not None and not self._ready.triggered and (batch := self._try_batch()) is not None:
            self._ready.succeed(batch)

    def _ask(self) -> None:
        """Ask policies: replicas that pull first, then whether the round ends, then admission."""
        self._heard, self._all_ended = [0, 0], False
        if self._pulls:
            self.pull()
        self._end_round()
        if self.rollout.changes_running and self.rollout.stop_and_move():
            self._wake_s = None
        if self.rollout.speculates and self.rollout.decode(np.arange(self.pool.replicas)):
            self._wake_s = None
        self.admit()

    def begin_round(self) -> None:
        """Generate for the next batch, unless what is buffered is enough already."""
        self.rollout.hold = False
        self._end_round()
        self.admit()

    def _end_round(self) -> None:
        """Ask whether the round ends; a group that selection drops counts for nothing in that."""
        round_end = self.setup.policies.round_end
        if self.rollout.hold or isinstance(round_end, Barrier):
            return
        if self.rollout.buffer:
            self._sift()
        closing = answers.word("round_end", round_end.close(self.view), (None, "keep", "drop", "carry"))
        if closing is not None:
            self.rollout.close_round(closing)
            self.rollout.hold = True
            self._wake_s = None

    def offer(self, role: str) -> None:
        """Ask who takes GPUs that have nothing to do; nobody can yet."""
        answers.word("bubble", self.setup.policies.bubble.taker(self.view, role), (None,))

    def pull(self) -> None:
        """With relays: replicas that have nothing to do take the newest weights."""
        view = self.view
        for i in np.flatnonzero(self.pool.loads == 0).tolist():
            if view.replica_versions[i] < view.version:
                self.pool.pull(i, view.now_s, view.version, self.setup.sync_cost.pull_s)
                view.replica_versions[i] = view.version

    def span(self, lane: str, name: str, t0_s: float) -> None:
        """Note what a lane did from t0_s until now."""
        self.spans.append((lane, name, t0_s, self.view.now_s))


def _due(wanted: Subscription, heard: list[int]) -> bool:
    """Whether so many finishes and groups are enough to wake a subscription."""
    return 0 < wanted.finishes <= heard[0] or 0 < wanted.groups <= heard[1]

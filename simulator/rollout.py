"""The rollout side of the world: groups start, live on the replicas, get rewards, and wait in the buffer."""

import heapq
import math
import sys
from collections.abc import Sequence

import numpy as np

from rollsim.policies.base import Prompt, Running, Speculation, Unit, Waiting
from rollsim.policies.decoding_plain import Plain
from rollsim.policies.early_stop_never import Never
from rollsim.policies.migration_none import Stay
from rollsim.simulator import answers
from rollsim.simulator.groups import Groups
from rollsim.simulator.kernel import groups as kernel
from rollsim.simulator.kernel.jit import bind
from rollsim.simulator.kernel.state import readable
from rollsim.simulator.new_rows import NewRows
from rollsim.simulator.pool import Pool
from rollsim.simulator.setup import Setup
from rollsim.simulator.trajectories import DISCARDED, NOT_YET, ROUND_OVER, STOPPED, VALIDATION, Trajectories
from rollsim.simulator.view import Counts
from rollsim.simulator.world_failed import WorldFailed

# Prompts from this number on are validation's own.
_VALIDATION_PROMPTS = 1 << 30


class Rollout:
    """Everything up to the buffer.

    Parameters
    ----------
    setup : Setup
    view : Counts
        Kept true here, but for the time, versions and what the trainer takes.
    pool : Pool
    trajectories : Trajectories

    Attributes
    ----------
    groups : Groups
    buffer : list of Unit
        Finished groups that nobody took, in the order in which they became final.
    hold : bool
        Nothing may start.
    validating : int
        Validation groups under way.
    changes_running : bool
        Some policy may stop or move what runs.
    speculates : bool
        Decoding may be other than plain.
    """

    def __init__(self, setup: Setup, view: Counts, pool: Pool, trajectories: Trajectories) -> None:
        self.setup, self.view, self.pool, self.trajectories = setup, view, pool, trajectories
        self.groups = Groups()
        self._new = NewRows(setup.workload, setup.limits.max_model_len, setup.reward_latency)
        self.buffer: list[Unit] = []
        self.hold = False
        stays = isinstance(setup.policies.early_stop, Never) and isinstance(setup.policies.migration, Stay)
        self.changes_running = not stays
        self.speculates = not isinstance(setup.policies.decoding, Plain)
        self._speculation: list[Speculation | None] = [None] * pool.replicas
        self.validating = 0
        self._carried = np.empty(0, np.int64)
        self._final: list[tuple[float, int]] = []
        self._validation_visits = 0
        self._over = np.empty(64, np.int64)
        known, some = (self.groups.rows, trajectories.rows), np.empty(0, np.int64)
        self._fill = bind(kernel.begin, *known, 0, 0, some, False, 0.0)
        self._count_off = bind(kernel.count_off, *known, some, some)
        self._rewarded_s = bind(kernel.rewarded_s, *known, some, np.empty(0))
        self._finals = bind(kernel.finals, *known, some, np.empty(0, kernel.FINAL))
        self._oldest_under_way = bind(kernel.oldest_under_way, self.groups.rows, some, 0)

    def admit(self) -> bool:
        """Resume what was interrupted and start what admission lets start; tells whether anything did."""
        if self.hold:
            return False
        view, resumed = self.view, self._carried
        if len(resumed):
            self._carried = resumed[:0]
            view.groups_carried = 0
            view.trajectories_in_flight += len(resumed)
        allowed = self.setup.policies.admission.may_start(view)
        count = answers.count("admission", allowed, -sys.maxsize, sys.maxsize, "groups")
        if count > 0:
            chosen = self.setup.policies.prompts.choose(view, count)
            answers.one_each("prompts", [prompt.prompt for prompt in chosen], count, "prompts")
            begun = self._begin(chosen, validation=False)
            view.groups_started += count
            view.groups_in_flight += count
            view.trajectories_in_flight += len(begun)
            self._dispatch(np.concatenate([resumed, begun]) if len(resumed) else begun)
        elif len(resumed):
            self._dispatch(resumed)
        return count > 0 or len(resumed) > 0

    def validate(self, prompts: int, samples: int) -> None:
        """Start validation: groups that are never trained on, on prompts of their own."""
        chosen = [Prompt(_VALIDATION_PROMPTS + i, self._validation_visits, samples) for i in range(prompts)]
        self._validation_visits += 1
        self.validating += prompts
        self._dispatch(self._begin(chosen, validation=True))

    def _begin(self, chosen: Sequence[Prompt], *, validation: bool) -> np.ndarray:
        """Make the records of new groups; returns the numbers of their trajectories."""
        view = self.view
        drawn, sizes = self._new.draw(chosen, view.samples_per_group, view.version)
        first, group = self.trajectories.add(drawn), self.groups.add(len(sizes))
        self._fill(self.groups.rows, self.trajectories.rows, group, first, sizes, validation, view.now_s)
        return np.arange(first, self.trajectories.n)

    def _dispatch(self, numbers: np.ndarray) -> None:
        rows, policies = self.trajectories.rows, self.setup.policies
        waiting = Waiting(rows["group"][numbers], rows["output_tokens"][numbers])
        keys = policies.ordering.keys(self.view, waiting)
        keys = answers.one_each("ordering", keys, len(numbers), "places in the queue")
        numbers = numbers[np.argsort(keys, kind="stable")]
        answered = policies.routing.route(self.view, len(numbers))
        routes = answers.routes(answered, len(numbers), self.pool.replicas)
        self.pool.start(self.view.now_s, numbers, routes)
        if self.speculates:
            self.decode(np.unique(routes))

    def decode(self, replicas: np.ndarray) -> bool:
        """Ask how replicas that have something to do decode; tells whether any changed."""
        changed = []
        for i in replicas[self.pool.loads[replicas] > 0].tolist():
            answer = self.setup.policies.decoding.speculate(self.view, int(self.pool.loads[i]))
            if answer != self._speculation[i]:
                answers.speculation(answer, self.setup)
                self._speculation[i] = answer
                changed.append(i)
        if changed:
            now = [self._speculation[i] or Speculation(0, 1.0) for i in changed]
            drafts, tokens = np.array([one.drafts for one in now]), np.array([one.tokens_per_step for one in now])
            self.pool.set_rates(self.view.now_s, np.array(changed), tokens, drafts)
        return len(changed) > 0

    def collect(self) -> int:
        """Take in what has ended by now; returns the finished trajectories."""
        numbers = self.pool.collect(self.view.now_s)
        if len(numbers):
            self._ended(numbers)
        due = []
        while self._final and self._final[0][0] <= self.view.now_s:
            due.append(heapq.heappop(self._final)[1])
        if due:
            self._buffer(np.array(due))
        return len(numbers)

    def _ended(self, numbers: np.ndarray) -> None:
        """Count off trajectories that have ended; a group whose last live one it was waits for its rewards."""
        if len(numbers) > len(self._over):
            self._over = np.empty(2 * len(numbers), np.int64)
        counted, n = self._count_off(self.groups.rows, self.trajectories.rows, numbers, self._over)
        self.view.trajectories_in_flight -= counted
        if n:
            self._close(self._over[:n].copy())

    def _close(self, over: np.ndarray) -> None:
        """Groups without live members: their rewards are due, or they were validation and nobody waits for them."""
        rows, validation = self.trajectories.rows, self.groups.rows["validation"][over]
        final_s = np.empty(len(over))
        self._rewarded_s(self.groups.rows, rows, over, final_s)
        for group, t_s, validates in zip(over.tolist(), final_s.tolist(), validation.tolist(), strict=True):
            if not validates:
                heapq.heappush(self._final, (t_s, group))
        if self.validating and validation.any():
            members = self.groups.members(over[validation])
            rows["fate"][members], rows["reason"][members] = DISCARDED, VALIDATION
            self.validating -= int(validation.sum())

    def _buffer(self, due: np.ndarray) -> None:
        view, finals = self.view, readable(np.empty(len(due), kernel.FINAL))
        self._finals(self.groups.rows, self.trajectories.rows, due, finals)
        self.buffer += [Unit(group, *final) for group, final in zip(due.tolist(), finals.tolist(), strict=True)]
        view.groups_in_flight -= len(due)
        view.groups_buffered += len(due)
        self._note_oldest()

    def _note_oldest(self) -> None:
        """Number of the oldest group under way; the next one to start if there is none."""
        waiting = np.array([group for _, group in self._final], np.int64)
        self.view.oldest_under_way = self._oldest_under_way(self.groups.rows, waiting, self.view.oldest_under_way)

    def _alive(self) -> np.ndarray:
        """Groups with live members, but for validation."""
        first = self.view.oldest_under_way
        rows = self.groups.rows[first:]
        return first + np.flatnonzero((rows["live"] > 0) & ~rows["validation"])

    def close_round(self, unfinished: str) -> None:
        """End the round: interrupt what still runs, or drop it."""
        view, rows = self.view, self.trajectories.rows
        if unfinished == "keep":
            self.pool.pause(view.now_s, "the round is over")
            return
        taken = self.pool.take_out(view.now_s, self._running())
        view.trajectories_in_flight -= len(taken)
        if unfinished == "carry":
            rows["attempts"][taken] += 1
            rows["t_end_s"][taken], rows["request"][taken] = -1.0, -1
            self._carried = np.concatenate([self._carried, taken])
            view.groups_carried = len(np.unique(rows["group"][self._carried]))
            return
        cut = np.unique(rows["group"][taken])
        whole = self.groups.members(cut)
        rows["fate"][whole], rows["reason"][whole] = DISCARDED, ROUND_OVER
        self.groups.rows["live"][cut] = 0
        view.groups_in_flight -= len(cut)
        view.groups_dropped += len(cut)
        self._note_oldest()

    def _running(self) -> np.ndarray:
        """Numbers of the trajectories that are on a replica, but for validation."""
        rows, now_s = self.trajectories.rows, self.view.now_s
        members = self.groups.members(self._alive())
        not_over = (rows["t_end_s"][members] < 0) | (rows["t_end_s"][members] > now_s)
        return members[not_over & (rows["request"][members] >= 0) & (rows["fate"][members] == NOT_YET)]

    def stop_and_move(self) -> bool:
        """Ask which trajectories stop early and which change their replica; tells whether any did."""
        policies, view, rows = self.setup.policies, self.view, self.trajectories.rows
        running = self.pool.running(view.now_s, self._running())
        stops = answers.among("early_stop", policies.early_stop.stop(view, running), running)
        stopped = self.pool.take_out(view.now_s, stops)
        if len(stopped):
            rows["fate"][stopped], rows["reason"][stopped] = DISCARDED, STOPPED
            goes_on = ~np.isin(running.trajectory, stopped)
            running = Running(*(column[goes_on] for column in running))
        moving, where = answers.moves(policies.migration.moves(view, running), running, self.pool.replicas)
        moved = self.pool.take_out(view.now_s, moving)
        if len(moved):
            rows["attempts"][moved] += 1
            rows["t_end_s"][moved] = -1.0
            order = np.argsort(moving)
            self.pool.start(view.now_s, moved, where[order][np.searchsorted(moving[order], moved)])
        if len(stopped):
            self._ended(stopped)
        return len(stopped) + len(moved) > 0

    def leave(self) -> None:
        """The run is over: note how far those have come that are under way."""
        rows = self.trajectories.rows
        running = self._running()
        self.pool.take_out(self.view.now_s, running)
        rows["t_end_s"][rows["t_end_s"] > self.view.now_s] = -1.0
        rows["t_end_s"][running] = -1.0

    def drop(self, units: Sequence[Unit], reason: int) -> None:
        """Take finished groups out of the buffer: no step will use them."""
        rows, gone = self.trajectories.rows, {unit.group for unit in units}
        members = self.groups.members(np.array(sorted(gone)))
        rows["fate"][members], rows["reason"][members] = DISCARDED, reason
        self.buffer = [unit for unit in self.buffer if unit.group not in gone]
        self.view.groups_buffered -= len(gone)
        self.view.groups_dropped += len(gone)

    def take(self, units: Sequence[Unit]) -> np.ndarray:
        """Take groups out of the buffer to train on; returns the numbers of their trajectories."""
        rows, taken = self.trajectories.rows, {unit.group for unit in units}
        members = self.groups.members(np.array(sorted(taken)))
        numbers = members[rows["fate"][members] != DISCARDED]
        if (rows["fate"][numbers] != NOT_YET).any():
            raise WorldFailed("INV-5: a trajectory would be consumed twice")
        self.buffer = [unit for unit in self.buffer if unit.group not in taken]
        self.view.groups_buffered -= len(taken)
        self.view.groups_consumed += len(taken)
        return numbers

    def next_final_s(self) -> float:
        """When the next group whose members have ended becomes final [s]."""
        return self._final[0][0] if self._final else math.inf

    def foreseen_end_s(self, *, validation: bool) -> float:
        """When the last trajectory under way will end if nothing is touched, of validation or of all [s]."""
        self.pool.foresee()
        if not validation:
            return self.pool.last_end_s()
        rows, groups = self.trajectories.rows, self.groups.rows
        members = self.groups.members(np.flatnonzero((groups["live"] > 0) & groups["validation"]))
        ends = rows["t_end_s"][members]
        later = ends[ends > self.view.now_s]
        return float(later.max()) if len(later) else math.inf

    def foreseen_finals_s(self) -> np.ndarray:
        """When each group under way will be final if nothing is touched [s]."""
        self.pool.foresee()
        first = self.view.oldest_under_way
        final_s = np.empty(self.groups.n - first + len(self._final))
        n = kernel.foreseen_s(self.groups.rows, self.trajectories.rows, first, final_s)
        final_s[n : n + len(self._final)] = [t_s for t_s, _ in self._final]
        return final_s[: n + len(self._final)]

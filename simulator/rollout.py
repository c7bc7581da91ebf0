"""The rollout side of the world: groups start, live on the replicas, get rewards, and wait in the buffer."""

import heapq
import math
from collections.abc import Sequence

import numpy as np

from rollsim.policies.base import Prompt, Unit, Waiting
from rollsim.simulator.groups import Groups
from rollsim.simulator.pool import Pool
from rollsim.simulator.setup import Setup
from rollsim.simulator.trajectories import DISCARDED, NOT_YET, ROUND_OVER, VALIDATION, Trajectories
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
    """

    def __init__(self, setup: Setup, view: Counts, pool: Pool, trajectories: Trajectories) -> None:
        self.setup, self.view, self.pool, self.trajectories = setup, view, pool, trajectories
        self.groups = Groups()
        self.buffer: list[Unit] = []
        self.hold = False
        self.validating = 0
        self._carried = np.empty(0, np.int64)
        self._final: list[tuple[float, int]] = []
        self._validation_visits = 0

    def admit(self) -> bool:
        """Resume what was interrupted and start what admission lets start; tells whether anything did."""
        if self.hold:
            return False
        view = self.view
        resumed, self._carried = self._carried, self._carried[:0]
        view.groups_carried = 0
        view.trajectories_in_flight += len(resumed)
        count = self.setup.policies.admission.may_start(view)
        begun = np.empty(0, np.int64)
        if count > 0:
            chosen = self.setup.policies.prompts.choose(view, count)
            if len(chosen) != count:
                raise WorldFailed(f"INV-10: asked for {count} prompts, the policy chose {len(chosen)}")
            begun = self._begin(chosen, validation=False)
            view.groups_started += count
            view.groups_in_flight += count
            view.trajectories_in_flight += len(begun)
        numbers = np.concatenate([resumed, begun]) if len(resumed) else begun
        if len(numbers):
            self._dispatch(numbers)
        return len(numbers) > 0

    def validate(self, prompts: int, samples: int) -> None:
        """Start validation: groups that are never trained on, on prompts of their own."""
        chosen = [Prompt(_VALIDATION_PROMPTS + i, self._validation_visits, samples) for i in range(prompts)]
        self._validation_visits += 1
        self.validating += prompts
        self._dispatch(self._begin(chosen, validation=True))

    def _begin(self, chosen: Sequence[Prompt], *, validation: bool) -> np.ndarray:
        """Make the records of new groups; returns the numbers of their trajectories."""
        view, usual = self.view, self.view.samples_per_group
        prompts = np.array([prompt.prompt for prompt in chosen])
        visits = np.array([prompt.visit for prompt in chosen])
        sizes = np.array([prompt.samples or usual for prompt in chosen])
        where = self.trajectories.add(int(sizes.sum()))
        groups = self.groups.add(where.start, prompts, visits, sizes, validation=validation)
        rows = self.trajectories.rows[where]
        rows["group"] = np.repeat(groups, sizes)
        rows["prompt"], rows["visit"] = np.repeat(prompts, sizes), np.repeat(visits, sizes)
        rows["sample"] = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        drawn = self.setup.workload.draw(rows["prompt"], rows["sample"], visit=rows["visit"], version=view.version)
        room = self.setup.limits.max_model_len - drawn.prompt_tokens
        rows["prompt_tokens"], rows["target_tokens"] = drawn.prompt_tokens, np.minimum(drawn.output_tokens, room)
        rows["truncated"] = drawn.truncated | (drawn.output_tokens > room)
        rows["reward"], rows["extra"] = drawn.reward, drawn.extra
        rows["t_submit_s"] = view.now_s
        return np.arange(where.start, where.stop)

    def _dispatch(self, numbers: np.ndarray) -> None:
        rows, policies = self.trajectories.rows[numbers], self.setup.policies
        keys = policies.ordering.keys(self.view, Waiting(rows["group"], rows["output_tokens"]))
        numbers = numbers[np.argsort(keys, kind="stable")]
        routes = np.array(policies.routing.route(self.view, len(numbers)))
        if routes.dtype == object or not ((routes >= 0) & (routes < len(self.pool.loads))).all():
            raise WorldFailed("INV-10: routing named a replica that does not exist, or none")
        self.pool.start(self.view.now_s, numbers, routes)

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
        rows, groups = self.trajectories.rows, self.groups.rows
        if len(numbers) == 1:
            of_group, ended = rows["group"][numbers], 1
            counted = 0 if groups["validation"][of_group[0]] else 1
        else:
            of_group, ended = np.unique(rows["group"][numbers], return_counts=True)
            counted = int(ended[~groups["validation"][of_group]].sum())
        groups["live"][of_group] -= ended
        self.view.trajectories_in_flight -= counted
        over = of_group[groups["live"][of_group] == 0]
        if len(over):
            self._close(over)

    def _close(self, over: np.ndarray) -> None:
        """Groups without live members: their rewards are due, or they were validation and nobody waits for them."""
        rows, groups = self.trajectories.rows, self.groups.rows
        members = self.groups.members(over)
        rows["t_final_s"][members] = rows["t_end_s"][members] + self.setup.reward_s(rows, members)
        final_s = np.maximum.reduceat(rows["t_final_s"][members], self._starts(over))
        for group, t_s in zip(over.tolist(), final_s.tolist(), strict=True):
            if not groups["validation"][group]:
                heapq.heappush(self._final, (t_s, group))
        if groups["validation"][over].any():
            done = over[groups["validation"][over]]
            members = self.groups.members(done)
            rows["fate"][members], rows["reason"][members] = DISCARDED, VALIDATION
            self.validating -= len(done)

    def _starts(self, groups: np.ndarray) -> np.ndarray:
        sizes = self.groups.rows["size"][groups]
        return np.cumsum(sizes) - sizes

    def _buffer(self, due: np.ndarray) -> None:
        rows, view = self.trajectories.rows, self.view
        members = self.groups.members(due)
        starts = self._starts(due)
        part = rows[members]
        stopped = part["fate"] != NOT_YET
        oldest = np.minimum.reduceat(np.where(stopped, np.iinfo("i4").max, part["version_start"]), starts)
        final_s = np.maximum.reduceat(part["t_final_s"], starts)
        mean = np.add.reduceat(part["reward"].astype(float), starts) / self.groups.rows["size"][due]
        spread = np.maximum.reduceat(part["reward"], starts) - np.minimum.reduceat(part["reward"], starts)
        tokens = np.add.reduceat(part["prompt_tokens"] + part["output_tokens"], starts)
        columns = (due, oldest, final_s, mean, spread, tokens)
        self.buffer += [Unit(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
        view.groups_in_flight -= len(due)
        view.groups_buffered += len(due)
        self._note_oldest()

    def _note_oldest(self) -> None:
        """Number of the oldest group under way; the next one to start if there is none."""
        waiting = {group for _, group in self._final}
        rows, i = self.groups.rows, self.view.oldest_under_way
        while i < self.groups.n and (rows["validation"][i] or (not rows["live"][i] and i not in waiting)):
            i += 1
        self.view.oldest_under_way = i

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
        rows, groups = self.trajectories.rows, self.groups.rows
        alive = groups["live"] > 0
        members = self.groups.members(np.flatnonzero(alive & groups["validation"] if validation else alive))
        ends = rows["t_end_s"][members[rows["request"][members] >= 0]]
        later = ends[ends > self.view.now_s]
        return float(later.max()) if len(later) else math.inf

    def foreseen_finals_s(self) -> np.ndarray:
        """When each group under way will be final if nothing is touched [s]."""
        self.pool.foresee()
        rows = self.trajectories.rows
        live = self._alive()
        if self.view.groups_carried:
            live = np.setdiff1d(live, rows["group"][self._carried])
        if not len(live):
            return np.array([t_s for t_s, _ in self._final])
        members = self.groups.members(live)
        final_s = np.maximum.reduceat(rows["t_end_s"][members] + self.setup.reward_s(rows, members), self._starts(live))
        return np.concatenate([final_s, [t_s for t_s, _ in self._final]])

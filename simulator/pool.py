"""The rollout pool: replicas that run alone, and what the world hears of them."""

import math
from collections.abc import Callable

import numpy as np

from rollsim.policies.base import Running
from rollsim.simulator.kernel import fleet, fleet_looks, fleet_touches, state
from rollsim.simulator.kernel.jit import bind
from rollsim.simulator.leases import Lease, Leases, Timeline
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.trajectories import Trajectories

TAIL = ("tail_bubble", "other replicas still generate")
WAITS = ("throttled", "admission waits for rewards or the trainer")
PULLS = ("sync", "pulls from the relay")

_FIRST_REQUESTS = 64
_NOBODY = np.empty(0, np.int64)
# Ledger categories of a step, and the kernel's accounts of them: of all steps, and of the last one.
_SPENT = {
    "prefill": ("prefill_time_s", "step_prefill_s"),
    "decode": ("decode_time_s", "step_decode_s"),
    "reprefill": ("recompute_time_s", "step_recompute_s"),
}


class Pool:
    """Equal replicas.

    Parameters
    ----------
    limits, tables
        Of one replica.
    replicas, gpus_per_replica : int
    trajectories : Trajectories
        Where results go.
    every_finish : bool
        Single finishes matter: replicas go no further than nobody can touch them. Else they run until nothing is left.
    log_spans : bool
        Keep the stays of each trajectory in the running batch.

    Attributes
    ----------
    loads : array of int [replicas]
        Unfinished trajectories on each replica, as the world knows.
    timeline : Timeline
        Why a replica stands still.
    paused : bool
        No replica makes steps until `swap`.
    """

    def __init__(
        self,
        limits: EngineLimits,
        tables: state.Tables,
        replicas: int,
        gpus_per_replica: int,
        trajectories: Trajectories,
        *,
        every_finish: bool,
        log_spans: bool,
    ) -> None:
        spans = 4 * limits.max_num_seqs * limits.lockstep_ranks if log_spans else 0
        one = state.allocate(limits, tables, _FIRST_REQUESTS, spans)
        self._fleet = fleet.idle(state.stacked(one, replicas))
        self._saved = state.stacked(one, 1 if every_finish else replicas)
        self.replicas, self.gpus_per_replica = replicas, gpus_per_replica
        self.loads = self._fleet.loads
        self.timeline = Timeline()
        self._trajectories = trajectories
        self._every_finish = every_finish
        self.paused = False
        # With `every_finish`: when `next_finish_s` has already recorded what ends.
        self._collected_s = -math.inf
        self._leases: list[Lease] = []
        self._spent = np.zeros((len(_SPENT) + 1, replicas))
        self._under_way = 0
        rows = trajectories.rows
        self._start = bind(fleet_touches.start, self._fleet, self._saved, rows, 0.0, _NOBODY)
        if every_finish:
            self._next_ends = bind(fleet_looks.next_ends, self._fleet, rows, 0.0)
            self._collect = bind(fleet_looks.collect, self._fleet, rows, 0.0)

    def states(self) -> list[state.State]:
        """State of each replica."""
        return [state.of_replica(self._fleet.state, i) for i in range(self.replicas)]

    def owners(self) -> list[np.ndarray]:
        """Trajectory of each request of each replica."""
        return list(self._fleet.owner)

    def lease(self, leases: Leases, t_s: float) -> None:
        """Take the GPUs of all replicas; time until now is nobody's."""
        size = self.gpus_per_replica
        self._leases = [leases.take("rollout", i * size, size, t_s) for i in range(self.replicas)]
        self._touch(t_s, 0, self.replicas)
        self._fleet.used[1] = 0
        self._spent = self._spent_s(t_s)

    def release(self, leases: Leases, t_s: float) -> None:
        """Give the GPUs back and account for every second of them."""
        self._touch(t_s, 0, self.replicas)
        spent = self._spent_s(t_s) - self._spent
        for category, seconds in zip([*_SPENT, "host"], spent.tolist(), strict=True):
            for lease, charge_s in zip(self._leases, seconds, strict=True):
                lease.charge(category, None, charge_s)
        for t0_s, t1_s, i, pulls in self._fleet.idle[: self._fleet.used[1]].tolist():
            until_s = min(t1_s, t_s)
            if not pulls:
                self.timeline.charge(self._leases[i], t0_s, until_s)
            elif t0_s < until_s:
                self._leases[i].charge(*PULLS, until_s - t0_s)
        self._fleet.used[1] = 0
        for lease in self._leases:
            leases.end(lease, t_s)
        self._leases = []

    def _spent_s(self, t_s: float) -> np.ndarray:
        """Seconds of steps up to t_s by ledger category and replica, host last; all stand touched at t_s.

        Of the step in flight only the part up to t_s counts, in proportion to its parts.
        """
        e = self._fleet.state.engine[:, 0]
        over_s = np.where(e["step_s"] > 0, np.maximum(e["now_s"] - t_s, 0), 0)
        share = over_s / np.where(e["step_s"] > 0, e["step_s"], 1)
        parts = [e[spent] - share * e[of_step] for spent, of_step in _SPENT.values()]
        gpu_step_s = sum(e[of_step] for _, of_step in _SPENT.values())
        return np.array([*parts, e["host_time_s"] - (over_s - share * gpu_step_s)])

    @property
    def leased(self) -> bool:
        """Whether it holds its GPUs."""
        return len(self._leases) > 0

    def _touch(self, t_s: float, first: int, end: int) -> None:
        self._all(lambda i: fleet_touches.touch(self._fleet, self._saved, t_s, i, end), first, end)

    def _all(self, call: Callable[[int], int], first: int, end: int) -> None:
        """Call with the first, then with where it had no room in a log, until the end."""
        while (first := call(first)) < end:
            self._fleet = fleet.with_longer_logs(self._fleet)

    def start(self, t_s: float, numbers: np.ndarray, routes: np.ndarray) -> None:
        """Dispatch trajectories to their replicas, in the order given."""
        rows = self._trajectories.rows
        rows["replica"][numbers] = routes
        if not self._under_way and not self.paused:
            self.timeline.mark(t_s, *TAIL)
        self._under_way += len(numbers)
        if self._under_way > len(self._fleet.ended):
            ended = np.empty(2 * self._under_way, np.int64)
            ended[: self._fleet.used[0]] = self._fleet.ended[: self._fleet.used[0]]
            self._fleet = self._fleet._replace(ended=ended)
        numbers = numbers[np.argsort(routes, kind="stable")]
        while queued := len(numbers):
            queued = self._start(self._fleet, self._saved, rows, t_s, numbers)
            numbers = numbers[queued:]
            if len(numbers):
                self._make_room(int((rows["replica"][numbers] == rows["replica"][numbers[0]]).sum()), numbers[0])

    def _make_room(self, requests: int, number: int) -> None:
        """Room for so many more requests on the replica of a trajectory, or in the logs if it has that."""
        i = self._trajectories.rows["replica"][number]
        needed = int(self._fleet.replica["n"][i]) + requests
        if needed <= self._fleet.owner.shape[1]:
            self._fleet = fleet.with_longer_logs(self._fleet)
            return
        self._fleet = fleet.with_more_requests(self._fleet, needed)
        if not self._every_finish:
            self._saved = state.grow(self._saved, self._fleet.owner.shape[1])

    def running(self, t_s: float, numbers: np.ndarray) -> Running:
        """How far those of these trajectories have come that have not ended; every replica of theirs is touched."""
        rows, n = self._trajectories.rows, len(numbers)
        live, tokens, oldest = np.zeros(n, bool), np.zeros(n, np.int64), np.zeros(n, np.int64)
        told = live, tokens, oldest
        self._all(lambda k: fleet_touches.progress(self._fleet, self._saved, rows, t_s, numbers, k, *told), 0, n)
        numbers = numbers[live]
        return Running(numbers, rows["group"][numbers], tokens[live], oldest[live], rows["replica"][numbers])

    def take_out(self, t_s: float, numbers: np.ndarray) -> np.ndarray:
        """Take trajectories out of their replicas without their KV; returns those that had not ended, in order."""
        rows, live = self._trajectories.rows, np.zeros(len(numbers), bool)
        self._all(
            lambda k: fleet_touches.take_out(self._fleet, self._saved, rows, t_s, numbers, k, live), 0, len(numbers)
        )
        self._under_way -= int(live.sum())
        if live.any() and not self._under_way and not self.paused:
            self.timeline.mark(t_s, *WAITS)
        return np.sort(numbers[live])

    def still_s(self) -> float:
        """When the step in flight of the slowest replica ends [s]."""
        return float(self._fleet.state.engine["now_s"].max())

    def next_finish_s(self, limit_s: float) -> float:
        """Time of the next finish that was not collected, if it is not after `limit_s`; else infinite."""
        if self._fleet.used[0]:
            return -math.inf
        while True:
            t_s, had_room = self._next_ends(self._fleet, self._trajectories.rows, limit_s)
            if had_room:
                self._collected_s = t_s
                return t_s
            self._fleet = fleet.with_longer_logs(self._fleet)

    def foresee(self) -> None:
        """Write the end of every trajectory under way, as it will be if nothing is touched, into its record."""
        rows = self._trajectories.rows
        self._all(lambda i: fleet_looks.foresee(self._fleet, self._saved, rows, i), 0, self.replicas)

    def last_end_s(self) -> float:
        """When the last trajectory ends that has not been collected, as foreseen; never if there is none [s]."""
        return float(fleet_looks.last_end_s(self._fleet))

    def collect(self, t_s: float) -> np.ndarray:
        """Numbers of the trajectories that ended up to t_s and were not collected before, their results recorded.

        Valid until the next call.
        """
        rows = self._trajectories.rows
        if self._every_finish:
            while t_s != self._collected_s and not self._collect(self._fleet, rows, t_s):
                self._fleet = fleet.with_longer_logs(self._fleet)
            self._collected_s = -math.inf
        else:
            self.foresee()
            fleet_looks.collect_foreseen(self._fleet, rows, t_s)
        if not (count := int(self._fleet.used[0])):
            return _NOBODY
        numbers = self._fleet.ended[:count]
        self._fleet.used[0] = 0
        self._under_way -= count
        if not self._under_way and not self.paused:
            self.timeline.mark(float(rows["t_end_s"][numbers].max()), *WAITS)
        return numbers

    def set_rates(self, t_s: float, replicas: np.ndarray, tokens_per_step: np.ndarray, drafts: np.ndarray) -> None:
        """Let replicas make so many tokens in a decode step from now on, verifying so many drafts."""
        rates = np.rint(tokens_per_step * state.FP).astype(np.int64)
        self._all(
            lambda k: fleet_touches.set_rates(self._fleet, self._saved, t_s, k, replicas, rates, drafts),
            0,
            len(replicas),
        )

    def pause(self, t_s: float, cause: str) -> None:
        """Stop all replicas at their next step boundary."""
        self.timeline.mark(t_s, "sync", cause)
        self.paused = True
        self._all(lambda i: fleet_touches.pause(self._fleet, self._saved, t_s, i), 0, self.replicas)

    def swap(self, t_s: float, version: int, *, keep_kv: bool) -> None:
        """Go on with new weights."""
        self._swap(t_s, 0, self.replicas, version, keep_kv=keep_kv, pulls=False)
        self.paused = False
        self.timeline.mark(t_s, *(TAIL if self._under_way else WAITS))

    def pull(self, i: int, t_s: float, version: int, seconds: float) -> None:
        """Replica i, which has nothing to do, takes new weights from a relay and can work after so many seconds."""
        self._touch(t_s, i, i + 1)
        self._swap(t_s + seconds, i, i + 1, version, keep_kv=False, pulls=True)

    def _swap(self, t_s: float, first: int, end: int, version: int, *, keep_kv: bool, pulls: bool) -> None:
        self._all(
            lambda i: fleet_touches.swap(self._fleet, self._saved, t_s, i, end, version, keep_kv, pulls), first, end
        )

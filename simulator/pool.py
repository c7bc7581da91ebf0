"""The rollout pool: replicas that run alone, and what the world hears of them."""

import heapq
import math

import numpy as np

from rollsim.simulator.kernel import state
from rollsim.simulator.leases import Lease, Leases, Timeline
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.run_ahead import RunAhead
from rollsim.simulator.trajectories import Trajectories

TAIL = ("tail_bubble", "other replicas still generate")
WAITS = ("throttled", "admission waits for rewards or the trainer")

_NOBODY = np.empty(0, np.int64)


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
        Single finishes matter: replicas go no further than the step in flight. Else they run until nothing is left.
    log_spans : bool
        Keep the stays of each trajectory in the running batch.

    Attributes
    ----------
    loads : array of int [replicas]
        Unfinished trajectories on each replica, as the world knows.
    timeline : Timeline
        Why a replica stands still.
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
        self.replicas = [RunAhead(limits, tables, trajectories, log_spans=log_spans) for _ in range(replicas)]
        self.gpus_per_replica = gpus_per_replica
        self.loads = np.zeros(replicas, np.int64)
        self.timeline = Timeline()
        self._trajectories = trajectories
        self._every_finish = every_finish
        self._leases: list[Lease] = []
        self._spent: list[dict[str, float]] = []
        # With `every_finish`: time before which nothing ends, replica, stamp, and whether something does end then.
        self._next: list[tuple[float, int, int, bool]] = []
        self._stamps = [0] * replicas
        self._foreseen: list[bool] = [False] * replicas
        self._ended: list[np.ndarray] = []

    def lease(self, leases: Leases, t_s: float) -> None:
        """Take the GPUs of all replicas; time until now is nobody's."""
        size = self.gpus_per_replica
        self._leases = [leases.take("rollout", i * size, size, t_s) for i in range(len(self.replicas))]
        for replica in self.replicas:
            replica.touch(t_s)
            replica.idle.clear()
        self._spent = [replica.spent_s() for replica in self.replicas]

    def release(self, leases: Leases, t_s: float) -> None:
        """Give the GPUs back and account for every second of them."""
        for lease, replica, before in zip(self._leases, self.replicas, self._spent, strict=True):
            for category, seconds in replica.spent_until_s(t_s).items():
                lease.charge(category, None, seconds - before[category])
            for t0_s, t1_s, cause in replica.idle:
                until_s = min(t1_s, t_s)
                if cause is None:
                    self.timeline.charge(lease, t0_s, until_s)
                elif t0_s < until_s:
                    lease.charge("sync", cause, until_s - t0_s)
            replica.idle.clear()
            leases.end(lease, t_s)
        self._leases = []

    @property
    def leased(self) -> bool:
        """Whether it holds its GPUs."""
        return len(self._leases) > 0

    def start(self, t_s: float, numbers: np.ndarray, routes: np.ndarray) -> None:
        """Dispatch trajectories to their replicas, in the order given."""
        self._trajectories.rows["replica"][numbers] = routes
        if not self.loads.any():
            self.timeline.mark(t_s, *TAIL)
        order = np.argsort(routes, kind="stable")
        numbers, routes = numbers[order], routes[order]
        cuts = np.flatnonzero(np.diff(routes)) + 1
        for first, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(routes)], strict=True):
            i = int(routes[first])
            self.replicas[i].dispatch(t_s, numbers[first:end])
            self.loads[i] += end - first
            self._touched(i, t_s)

    def take_out(self, t_s: float, numbers: np.ndarray) -> np.ndarray:
        """Take trajectories out of their replicas without their KV; returns those that had not ended."""
        replica = self._trajectories.rows["replica"][numbers]
        taken = []
        for i in np.unique(replica).tolist():
            live = self.replicas[i].take_out(t_s, numbers[replica == i])
            self.loads[i] -= len(live)
            taken.append(live)
            self._touched(i, t_s)
        return np.concatenate(taken) if taken else numbers[:0]

    def still_s(self) -> float:
        """When the step in flight of the slowest replica ends [s]."""
        return max(replica.now_s for replica in self.replicas)

    def _touched(self, i: int, t_s: float) -> None:
        self._foreseen[i] = False
        if self._every_finish:
            self._look(i, t_s)

    def _look(self, i: int, t_s: float, horizon_s: float = -math.inf) -> None:
        """Let replica i go on to t_s, or as far as nobody can touch it, and find what it does next."""
        self._stamps[i] += 1
        numbers, next_s, known = self.replicas[i].advance(t_s, horizon_s)
        if len(numbers):
            self._ended.append(numbers)
            self.loads[i] -= len(numbers)
        if next_s < math.inf:
            heapq.heappush(self._next, (next_s, i, self._stamps[i], known))

    def next_finish_s(self, limit_s: float) -> float:
        """Time of the next finish that was not collected, if it is not after `limit_s`; else infinite.

        Replicas are taken along as far as no touch can come before: up to the time before which nothing ends on any
        other, and up to `limit_s`, where something else happens.
        """
        if self._ended:
            return -math.inf
        while self._next:
            t_s, i, stamp, known = self._next[0]
            if stamp != self._stamps[i]:
                heapq.heappop(self._next)
                continue
            if known or t_s > limit_s:
                return t_s if t_s <= limit_s else math.inf
            heapq.heappop(self._next)
            self._look(i, -math.inf, min(limit_s, self._next[0][0]) if self._next else limit_s)
        return math.inf

    def foresee(self) -> None:
        """Write the end of every trajectory under way, as it will be if nothing is touched, into its record."""
        ends = self._trajectories.rows["t_end_s"]
        for i in np.flatnonzero(self.loads).tolist():
            if not self._foreseen[i]:
                numbers, times = self.replicas[i].run_to_idle()
                ends[numbers] = times
                self._foreseen[i] = True

    def collect(self, t_s: float) -> np.ndarray:
        """Numbers of the trajectories that ended up to t_s and were not collected before, their results recorded."""
        if self._every_finish:
            due = []
            while self._next and self._next[0][0] <= t_s:
                due.append(heapq.heappop(self._next))
            for _, i, stamp, _ in due:
                if stamp == self._stamps[i]:
                    self._look(i, t_s)
        else:
            self.foresee()
            for i in np.flatnonzero(self.loads).tolist():
                numbers = self.replicas[i].report(t_s)
                if len(numbers):
                    self.loads[i] -= len(numbers)
                    self._ended.append(numbers)
        if not self._ended:
            return _NOBODY
        numbers = self._ended[0] if len(self._ended) == 1 else np.concatenate(self._ended)
        self._ended = []
        if not self.loads.any():
            self.timeline.mark(float(self._trajectories.rows["t_end_s"][numbers].max()), *WAITS)
        return numbers

    def pause(self, t_s: float, cause: str) -> None:
        """Stop all replicas at their next step boundary."""
        self.timeline.mark(t_s, "sync", cause)
        for i, replica in enumerate(self.replicas):
            replica.pause(t_s)
            self._touched(i, t_s)

    def swap(self, t_s: float, version: int, *, keep_kv: bool) -> None:
        """Go on with new weights."""
        for i, replica in enumerate(self.replicas):
            replica.swap(t_s, version, keep_kv=keep_kv)
            self._touched(i, t_s)
        self.timeline.mark(t_s, *(TAIL if self.loads.any() else WAITS))

    def pull(self, i: int, t_s: float, version: int, seconds: float) -> None:
        """Replica i, which has nothing to do, takes new weights from a relay and can work after so many seconds."""
        self.replicas[i].touch(t_s)
        self.replicas[i].swap(t_s + seconds, version, keep_kv=False, cause="pulls from the relay")
        self._touched(i, t_s)

"""GPUs leased one by one to a role, and what each lease's seconds went to: the ledger."""

import bisect
from collections import defaultdict
from dataclasses import dataclass, field

from rollsim.simulator.world_failed import WorldFailed


@dataclass
class Lease:
    """GPUs `first` to first + count - 1 in one role from t0_s to t1_s.

    `charges` holds seconds of wall time by (category, cause); each GPU of the lease spends them.
    """

    role: str
    first: int
    count: int
    t0_s: float
    t1_s: float | None = None
    charges: dict[tuple[str, str | None], float] = field(default_factory=lambda: defaultdict(float))

    def charge(self, category: str, cause: str | None, seconds: float) -> None:
        """Account for seconds of the lease."""
        self.charges[category, cause] += seconds


class Leases:
    """All leases of a cluster; a GPU has one holder at a time (INV-12).

    Parameters
    ----------
    gpus : int
        GPUs of the cluster.
    """

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.all: list[Lease] = []
        self._holder: list[Lease | None] = [None] * gpus

    def take(self, role: str, first: int, count: int, t_s: float) -> Lease:
        """Lease free GPUs."""
        taken = [gpu for gpu in range(first, first + count) if self._holder[gpu] is not None]
        if taken:
            raise WorldFailed(f"INV-12: GPUs {taken} are leased, {role} wants them at {t_s} s")
        lease = Lease(role, first, count, t_s)
        self._holder[first : first + count] = [lease] * count
        self.all.append(lease)
        return lease

    def end(self, lease: Lease, t_s: float) -> None:
        """Give GPUs back."""
        lease.t1_s = t_s
        self._holder[lease.first : lease.first + lease.count] = [None] * lease.count


class Timeline:
    """Why a pool's replicas have nothing to do, as a function of time."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._states: list[tuple[str, str | None]] = []

    def mark(self, t_s: float, category: str, cause: str | None) -> None:
        """From t_s on it is this; marks come in the order of time."""
        if self._times and t_s < self._times[-1]:
            raise WorldFailed(f"INV-6: time runs back from {self._times[-1]} s to {t_s} s")
        self._times.append(t_s)
        self._states.append((category, cause))

    def charge(self, lease: Lease, t0_s: float, t1_s: float) -> None:
        """Charge an interval to a lease, cut where the reason changes."""
        i = max(bisect.bisect_right(self._times, t0_s) - 1, 0)
        while t0_s < t1_s:
            until_s = min(t1_s, self._times[i + 1]) if i + 1 < len(self._times) else t1_s
            lease.charge(*self._states[i], until_s - t0_s)
            t0_s = until_s
            i += 1

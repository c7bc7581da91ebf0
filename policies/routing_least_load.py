"""Each trajectory to the replica with the fewest."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollsim.policies.base import NEVER, Subscription, View

_FEW = 16


@dataclass(frozen=True)
class LeastLoad:
    """The replica with the fewest unfinished trajectories, those of this call counted; the lowest index on ties."""

    subscription: Subscription = NEVER

    def route(self, view: View, count: int) -> NDArray[np.int64]:
        """Deal one by one: seat j of replica i is taken in the order of (its load + j, i)."""
        loads = view.replica_loads
        if count <= _FEW:
            return _one_by_one(loads.copy(), count)
        level = _level(np.sort(loads), count)
        seats = np.maximum(level + 1 - loads, 0)
        replica = np.repeat(np.arange(len(loads)), seats)
        filled = np.arange(seats.sum()) - np.repeat(np.cumsum(seats) - seats, seats) + np.repeat(loads, seats)
        return replica[np.lexsort((replica, filled))[:count]]


def _one_by_one(loads: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """As by seats, faster for few."""
    replica = np.empty(count, np.int64)
    for k in range(count):
        replica[k] = i = loads.argmin()
        loads[i] += 1
    return replica


def _level(loads: NDArray[np.int64], count: int) -> int:
    """Highest load before the last of `count` is seated, as water would stand; `loads` are sorted."""
    filled = loads * np.arange(1, len(loads) + 1) - np.cumsum(loads)
    below = int(np.searchsorted(filled, count, side="left"))
    return int((count + loads[:below].sum()) // below)

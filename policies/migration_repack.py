"""The tails of two replicas on one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollsim.policies.base import Move, Running, Subscription, View


@dataclass(frozen=True)
class Repack:
    """Move all of the emptiest replica to the next emptiest, if both together have few; again and again.

    A replica that is free takes new weights or new work at once (Laminar, arXiv 2510.12633, section 5). Only replicas
    of one version are packed together, so that no trajectory mixes weights on its account.

    Attributes
    ----------
    at_most : int
        Trajectories that one replica may have afterwards.
    every_s : float
        How often to look [s].
    """

    at_most: int
    every_s: float

    @property
    def subscription(self) -> Subscription:
        """Ticks."""
        return Subscription(every_s=self.every_s)

    def moves(self, view: View, running: Running) -> Sequence[Move]:
        """Pair the emptiest with the next emptiest of its version; ties go by number, into the higher one."""
        loads = view.replica_loads
        moved: list[Move] = []
        for version in sorted(set(view.replica_versions)):
            busy = [i for i in np.flatnonzero(loads).tolist() if view.replica_versions[i] == version]
            busy.sort(key=lambda i: (loads[i], i))
            while len(busy) > 1 and loads[busy[0]] + loads[busy[1]] <= self.at_most:
                source, target, *busy = busy
                moved += [Move(number, target) for number in running.trajectory[running.replica == source].tolist()]
        return moved

"""Equal contiguous parts of a batch, dealt up front: verl's data-parallel dispatch."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollsim.policies.base import NEVER, Subscription, View


@dataclass(frozen=True)
class EvenSplit:
    """Part i of the trajectories that start together goes to replica i; the first parts take what is left over."""

    subscription: Subscription = NEVER

    def route(self, view: View, count: int) -> Sequence[int]:
        """Cut `count` trajectories into as many parts as there are replicas."""
        replicas = len(view.replica_loads)
        part, rest = divmod(count, replicas)
        return [i for i in range(replicas) for _ in range(part + (i < rest))]

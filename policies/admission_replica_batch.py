"""A batch for each replica that has nothing left to do, whatever the others do (Laminar, arXiv 2510.12633)."""

from dataclasses import dataclass

from rollsim.policies.base import EVERY_FINISH, Subscription, View


@dataclass(frozen=True)
class ReplicaBatch:
    """Start `groups` groups for each empty replica.

    Attributes
    ----------
    groups : int
        Groups of one replica's batch.
    subscription
        Looks at every finish: the last one empties a replica.
    """

    groups: int
    subscription: Subscription = EVERY_FINISH

    def may_start(self, view: View) -> int:
        """Return the groups for all empty replicas together."""
        return self.groups * int((view.replica_loads == 0).sum())

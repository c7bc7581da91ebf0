"""Relays hold the newest weights; each replica pulls them by itself (Laminar, arXiv 2510.12633)."""

from dataclasses import dataclass

from rollsim.policies.base import EVERY_FINISH, Subscription, SyncPlan, View


@dataclass(frozen=True)
class Relay:
    """The trainer goes on when the relays have the weights; a replica pulls them when it has nothing left to do.

    Attributes
    ----------
    subscription
        Looks at every finish: the last one empties a replica.
    """

    subscription: Subscription = EVERY_FINISH

    def plan(self, view: View) -> SyncPlan:  # noqa: ARG002 - always the same
        """Leave it to the replicas."""
        return SyncPlan("relay", keep_kv=False)

"""A cap on the trajectories under way."""

from dataclasses import dataclass

from rollsim.policies.base import EVERY_FINISH, Subscription, View


@dataclass(frozen=True)
class Concurrency:
    """Start groups while all of their trajectories fit under the cap; looks again at every finish.

    Attributes
    ----------
    trajectories : int
        Most trajectories that generate or wait for a replica at a time.
    """

    trajectories: int
    subscription: Subscription = EVERY_FINISH

    def may_start(self, view: View) -> int:
        """Return the groups that fit; one always fits into an empty pool."""
        room = (self.trajectories - view.trajectories_in_flight) // view.samples_per_group
        return max(room, 0 if view.trajectories_in_flight else 1)

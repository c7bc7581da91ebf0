"""Groups are trained in the order in which they were started."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollsim.policies.base import NEVER, Selected, Subscription, Unit, View


@dataclass(frozen=True)
class InOrder:
    """Take finished groups by their number, but none before one that is still under way.

    With a staleness quota, nobody is overtaken and the quota is a hard bound: the trainer waits for stragglers.
    """

    subscription: Subscription = NEVER

    def select(self, view: View, units: Sequence[Unit]) -> Selected:
        """Return the finished groups without a gap before them."""
        return Selected([unit for unit in sorted(units) if unit.group < view.oldest_under_way], [])

"""Groups that are too old are never trained: the hard form of a staleness bound."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollsim.policies.base import NEVER, Selected, Subscription, Unit, View


@dataclass(frozen=True)
class DropStale:
    """Drop groups whose staleness, version now less oldest version, is above `eta`.

    Attributes
    ----------
    eta : int
        Staleness bound [versions].
    """

    eta: int
    subscription: Subscription = NEVER

    def select(self, view: View, units: Sequence[Unit]) -> Selected:
        """Keep the order of those that stay."""
        fresh = [unit for unit in units if view.version - unit.oldest_version <= self.eta]
        return Selected(fresh, [unit for unit in units if view.version - unit.oldest_version > self.eta])

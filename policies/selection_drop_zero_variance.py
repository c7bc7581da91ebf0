"""Dynamic sampling: groups whose rewards are all equal give no gradient and are replaced (DAPO, arXiv 2503.14476)."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollsim.policies.base import NEVER, Selected, Subscription, Unit, View


@dataclass(frozen=True)
class DropZeroVariance:
    """Drop groups without spread of rewards; those with unknown rewards stay."""

    subscription: Subscription = NEVER

    def select(self, view: View, units: Sequence[Unit]) -> Selected:  # noqa: ARG002 - rewards alone count
        """Keep the order of those that stay."""
        flat = [unit for unit in units if unit.reward_spread == 0]
        return Selected([unit for unit in units if unit.reward_spread != 0], flat)

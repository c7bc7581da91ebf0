"""What has nothing to do stays idle."""

from dataclasses import dataclass

from rollsim.policies.base import NEVER, Subscription, View


@dataclass(frozen=True)
class Nobody:
    """Leave it idle."""

    subscription: Subscription = NEVER

    def taker(self, view: View, role: str) -> str | None:  # noqa: ARG002 - whoever waits
        """Return nobody."""
        return None

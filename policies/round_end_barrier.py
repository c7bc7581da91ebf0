"""A round of generation ends when its last trajectory has ended."""

from dataclasses import dataclass

from rollsim.policies.base import NEVER, Subscription, View


@dataclass(frozen=True)
class Barrier:
    """Never closes early."""

    subscription: Subscription = NEVER

    def close(self, view: View) -> None:
        """Let it go on."""

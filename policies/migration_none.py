"""Nothing moves."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollsim.policies.base import NEVER, Move, Running, Subscription, View


@dataclass(frozen=True)
class Stay:
    """A trajectory ends where it began."""

    subscription: Subscription = NEVER

    def moves(self, view: View, running: Running) -> Sequence[Move]:  # noqa: ARG002 - whatever runs
        """Return none."""
        return ()

"""Trajectories run to their own end."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollsim.policies.base import NEVER, Running, Subscription, View


@dataclass(frozen=True)
class Never:
    """Stop nothing."""

    subscription: Subscription = NEVER

    def stop(self, view: View, running: Running) -> Sequence[int]:  # noqa: ARG002 - whatever runs
        """Return nobody."""
        return ()

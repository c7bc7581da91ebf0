"""The KV of a trajectory that waits for a tool stays where it is."""

from dataclasses import dataclass
from typing import Literal

from rollsim.policies.base import NEVER, Running, Subscription, View


@dataclass(frozen=True)
class Hold:
    """Hold it."""

    subscription: Subscription = NEVER

    def kv(self, view: View, leaving: Running) -> Literal["hold", "offload", "drop"]:  # noqa: ARG002 - whoever leaves
        """Return "hold"."""
        return "hold"

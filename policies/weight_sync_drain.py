"""The barrier: new weights when nothing runs."""

from dataclasses import dataclass

from rollsim.policies.base import NEVER, Subscription, SyncPlan, View


@dataclass(frozen=True)
class Drain:
    """Start nothing new, let what runs end, then swap; the synchronous barrier where nothing runs."""

    subscription: Subscription = NEVER

    def plan(self, view: View) -> SyncPlan:  # noqa: ARG002 - always the same
        """Wait for the pool."""
        return SyncPlan("drain", keep_kv=False)

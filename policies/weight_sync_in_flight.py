"""New weights under running trajectories."""

from dataclasses import dataclass

from rollsim.policies.base import NEVER, Subscription, SyncPlan, View


@dataclass(frozen=True)
class InFlight:
    """Stop the replicas at their next step boundary, swap, go on.

    Attributes
    ----------
    keep_kv : bool
        Go on with the KV of the old weights (PipelineRL); else recompute it under the new ones (AReaL).
    """

    keep_kv: bool = False
    subscription: Subscription = NEVER

    def plan(self, view: View) -> SyncPlan:  # noqa: ARG002 - always the same
        """Interrupt."""
        return SyncPlan("interrupt", keep_kv=self.keep_kv)

"""The same GPUs generate and train, one after the other."""

from dataclasses import dataclass

from rollsim.policies.base import NEVER, Shares, Subscription, View


@dataclass(frozen=True)
class Colocate:
    """All GPUs in both roles by turns."""

    subscription: Subscription = NEVER

    def shares(self, view: View) -> Shares:
        """Return all GPUs, shared."""
        return Shares(view.total_gpus, view.total_gpus, shared=True)

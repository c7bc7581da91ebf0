"""Micro-batches stream into the trainer while the rest of the batch still generates (StreamRL, arXiv 2504.15930)."""

from dataclasses import dataclass

from rollsim.policies.base import NEVER, Subscription, View


@dataclass(frozen=True)
class Streaming:
    """Take `micro_groups` finished groups at a time; gradients add up until the mini-batch is complete.

    Attributes
    ----------
    micro_groups : int
        Groups of a micro-batch.
    """

    micro_groups: int = 1
    subscription: Subscription = NEVER

    def groups(self, view: View) -> int:
        """Return a micro-batch, or what is left."""
        return min(self.micro_groups, view.groups_missing)

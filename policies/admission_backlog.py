"""A cap on finished groups that wait for the trainer: a full buffer stops generation."""

from dataclasses import dataclass

from rollsim.policies.base import NEVER, Subscription, View


@dataclass(frozen=True)
class Backlog:
    """Start groups only while those in flight and in the buffer would fit into `batches` train batches.

    Attributes
    ----------
    batches : int
        Train batches that may be under way or wait.
    """

    batches: int
    subscription: Subscription = NEVER

    def may_start(self, view: View) -> int:
        """Return the groups that fit."""
        held = view.groups_in_flight + view.groups_buffered
        return max(0, self.batches * view.groups_per_step - held)

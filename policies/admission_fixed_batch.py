"""Whole batches: what synchronous and k-step-off training generate."""

from dataclasses import dataclass

from rollsim.policies.base import NEVER, Subscription, View


@dataclass(frozen=True)
class FixedBatch:
    """Start the next batch when the last one has ended and the trainer is at most `ahead` batches behind.

    Attributes
    ----------
    ahead : int
        0 is synchronous; 1 generates a batch while the trainer works on the one before (one-step-off).
    over_issue : int
        Groups that are started in addition, for a round that closes before all have ended (`round_end`); needs
        `ahead` 0.
    """

    ahead: int = 0
    over_issue: int = 0
    subscription: Subscription = NEVER

    def may_start(self, view: View) -> int:
        """Return what is left of a batch that has begun, all groups of the next one, or 0."""
        started = view.groups_started - view.groups_dropped
        room = (view.steps + self.ahead + 1) * view.groups_per_step + self.over_issue - started
        if self.ahead:
            begun = started % view.groups_per_step
            room = 0 if view.groups_in_flight and not begun else min(room, view.groups_per_step - begun)
        return max(0, room)

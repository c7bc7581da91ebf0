"""The trainer waits for a whole batch."""

from dataclasses import dataclass

from rollsim.policies.base import NEVER, Subscription, View


@dataclass(frozen=True)
class Batch:
    """Take all that the step lacks at once."""

    subscription: Subscription = NEVER

    def groups(self, view: View) -> int:
        """Return what the step lacks."""
        return view.groups_missing

"""One token in each decode step."""

from dataclasses import dataclass

from rollsim.policies.base import NEVER, Speculation, Subscription, View


@dataclass(frozen=True)
class Plain:
    """No drafts."""

    subscription: Subscription = NEVER

    def speculate(self, view: View, batch: int) -> Speculation | None:  # noqa: ARG002 - whatever the batch
        """Return none."""
        return None

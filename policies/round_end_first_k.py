"""A round closes when it has enough groups; the rest is carried over, dropped or kept (APRIL, arXiv 2509.18521)."""

from dataclasses import dataclass
from typing import Literal

from rollsim.policies.base import EVERY_GROUP, Subscription, View


@dataclass(frozen=True)
class FirstK:
    """Close when the step has all the groups that it lacks; a round that would find them all does not begin.

    Attributes
    ----------
    unfinished : str
        "carry": interrupted, and resumed from their tokens in the next round (partial rollouts); "drop": discarded;
        "keep": stopped on their replicas with their KV until the next weights.
    """

    unfinished: Literal["carry", "drop", "keep"] = "carry"
    subscription: Subscription = EVERY_GROUP

    def close(self, view: View) -> Literal["keep", "drop", "carry"] | None:
        """Count the finished groups."""
        return self.unfinished if view.groups_buffered >= view.groups_missing > 0 else None

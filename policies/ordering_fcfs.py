"""First come, first served, by the number of the group: interrupted ones are older and go first."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollsim.policies.base import NEVER, Subscription, View, Waiting


@dataclass(frozen=True)
class Fcfs:
    """Older groups first."""

    subscription: Subscription = NEVER

    def keys(self, view: View, waiting: Waiting) -> NDArray[np.float64]:  # noqa: ARG002 - the order of starts
        """Return the group numbers."""
        return waiting.group.astype(np.float64)

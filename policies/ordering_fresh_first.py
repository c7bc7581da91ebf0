"""New trajectories before interrupted ones."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollsim.policies.base import NEVER, Subscription, View, Waiting


@dataclass(frozen=True)
class FreshFirst:
    """Those with fewer tokens so far first."""

    subscription: Subscription = NEVER

    def keys(self, view: View, waiting: Waiting) -> NDArray[np.float64]:  # noqa: ARG002 - tokens alone count
        """Return the tokens so far."""
        return waiting.output_tokens.astype(np.float64)

"""Some GPUs generate, the others train."""

from dataclasses import dataclass

from rollsim.policies.base import NEVER, Shares, Subscription, View


@dataclass(frozen=True)
class StaticSplit:
    """A fixed split.

    Attributes
    ----------
    rollout_gpus : int
        GPUs that generate; the others train.
    """

    rollout_gpus: int
    subscription: Subscription = NEVER

    def shares(self, view: View) -> Shares:
        """Return the split."""
        return Shares(self.rollout_gpus, view.total_gpus - self.rollout_gpus, shared=False)

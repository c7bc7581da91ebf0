"""As many groups as the trainer will consume within eta versions."""

from dataclasses import dataclass

from rollsim.policies.base import NEVER, Subscription, View


@dataclass(frozen=True)
class StalenessQuota:
    """Only groups that the trainer takes by version v + eta, in their turn, are started and not dropped.

    With one version for each step those are (v + eta + 1) batches.
    A group started in its turn and consumed in its turn is then at most `eta` versions old. A straggler that others
    overtake may exceed it: the quota alone is a soft bound (AReaL, arXiv 2505.24298, section 5.1).

    Attributes
    ----------
    eta : int
        Staleness bound [versions].
    """

    eta: int
    subscription: Subscription = NEVER

    def may_start(self, view: View) -> int:
        """Return what is left of the quota."""
        steps, versions = divmod(view.version + self.eta, view.versions_per_step)
        of_step = min(view.groups_per_step, (versions + 1) * view.groups_per_version)
        started = view.groups_started - view.groups_dropped
        return max(0, steps * view.groups_per_step + of_step - started)

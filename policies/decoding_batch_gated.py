"""Speculative decoding where the batch is small."""

from dataclasses import dataclass

from rollsim.policies.base import EVERY_FINISH, Speculation, Subscription, View


@dataclass(frozen=True)
class BatchGated:
    """Verify drafts in each decode step of a replica that has few trajectories; drafting itself takes no time.

    With a chance `acceptance` for each draft, independent of the others, a step makes
    (1 - acceptance**(drafts + 1)) / (1 - acceptance) tokens in the mean (Leviathan et al., arXiv 2211.17192,
    equation 1); here every step makes as many. Verifying pays while a step's time hardly grows with its tokens, which
    is so in the tail (n-gram and other drafters that cost nothing beside the model).

    Attributes
    ----------
    drafts : int
        Drafts in each step.
    acceptance : float
        Chance of a draft, above 0 and at most 1.
    at_most : int
        Unfinished trajectories of a replica up to which it speculates.
    """

    drafts: int
    acceptance: float
    at_most: int
    subscription: Subscription = EVERY_FINISH

    def __post_init__(self) -> None:
        if not 0 < self.acceptance <= 1:
            raise ValueError(f"acceptance is a chance, above 0 and at most 1, not {self.acceptance}")

    def speculate(self, view: View, batch: int) -> Speculation | None:  # noqa: ARG002 - the batch alone decides
        """Speculate up to the gate."""
        if batch > self.at_most or not self.drafts:
            return None
        a = self.acceptance
        tokens = self.drafts + 1 if a == 1 else (1 - a ** (self.drafts + 1)) / (1 - a)
        return Speculation(self.drafts, tokens)

"""Prompts in the order of the data set, over and over."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollsim.policies.base import NEVER, Prompt, Subscription, View


@dataclass(frozen=True)
class InOrder:
    """Prompt i on the i-th start.

    Attributes
    ----------
    prompts : int
        Size of the data set; after the last prompt the first is visited again. 0: it never ends.
    """

    prompts: int = 0
    subscription: Subscription = NEVER

    def choose(self, view: View, groups: int) -> Sequence[Prompt]:
        """Continue where the last start left off."""
        first = view.groups_started
        if not self.prompts:
            return [Prompt(i, 0) for i in range(first, first + groups)]
        return [Prompt(i % self.prompts, i // self.prompts) for i in range(first, first + groups)]

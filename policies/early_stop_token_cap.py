"""A cap on tokens, looked at from time to time."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollsim.policies.base import Running, Subscription, View


@dataclass(frozen=True)
class TokenCap:
    """Stop what has more tokens than the cap; its group trains without it.

    Unlike a limit of the engine, which cuts a response and keeps it, this gives up on responses that have run away.

    Attributes
    ----------
    tokens : int
        Cap [tokens].
    every_s : float
        How often to look [s].
    """

    tokens: int
    every_s: float

    @property
    def subscription(self) -> Subscription:
        """Ticks."""
        return Subscription(every_s=self.every_s)

    def stop(self, view: View, running: Running) -> Sequence[int]:  # noqa: ARG002 - whatever the world does
        """Return those above the cap."""
        return running.trajectory[running.output_tokens > self.tokens].tolist()

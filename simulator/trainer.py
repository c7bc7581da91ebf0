"""The train pool: the parts of a train step in seconds, and what its GPUs do between steps."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from rollsim.simulator.leases import Lease, Leases
from rollsim.simulator.train_cost import TrainCost


class Part(NamedTuple):
    """A stretch of a train step, by ledger category and cause."""

    category: str
    cause: str | None
    seconds: float


def pass_parts(cost: TrainCost, tokens: np.ndarray, roles: Collection[str]) -> list[Part]:
    """Passes without gradients over sequences of so many tokens: log-probabilities, reference, values of the critic."""
    names = [name for name in ("logprob", "reference", "critic") if name in roles]
    seconds = cost.forward_s(tokens) if names else 0.0
    return [Part(name, "values" if name == "critic" else None, seconds) for name in names]


def gradient_parts(cost: TrainCost, tokens: np.ndarray, roles: Collection[str]) -> list[Part]:
    """Forward and backward passes over these sequences; the critic, a model of the same size, takes as long again."""
    work = cost.gradients(tokens)
    parts = [
        Part("forward_backward", None, work.busy_s),
        Part("tail_bubble", "slower data-parallel ranks", work.slack_s),
        Part("tail_bubble", "pipeline fills and drains", work.bubble_s),
        Part("communication", "sharded weights and gradients", work.communication_s),
    ]
    if "critic" in roles:
        parts.append(Part("critic", "forward and backward", sum(part.seconds for part in parts)))
    return parts


def update_parts(cost: TrainCost, roles: Collection[str]) -> list[Part]:
    """One optimizer update: gradients are exchanged, weights and moments written; the critic's as well."""
    models = 2 if "critic" in roles else 1
    return [
        Part("communication", "gradients", models * cost.communication_s),
        Part("optimizer", None, models * cost.optimizer_s),
    ]


class TrainLane:
    """Accounts for every second of the train pool's GPUs.

    Parameters
    ----------
    leases : Leases
    first, count : int
        Its GPUs.
    """

    def __init__(self, leases: Leases, first: int, count: int) -> None:
        self._leases, self._first, self._count = leases, first, count
        self._lease: Lease | None = None
        self._until_s = 0.0

    def take(self, t_s: float) -> None:
        """Lease the GPUs."""
        self._lease = self._leases.take("train", self._first, self._count, t_s)
        self._until_s = t_s

    def until(self, t_s: float, category: str, cause: str | None) -> None:
        """From the last account up to t_s it was this."""
        if self._lease is not None and t_s > self._until_s:
            self._lease.charge(category, cause, t_s - self._until_s)
            self._until_s = t_s

    def spend(self, parts: list[Part]) -> None:
        """It goes through these parts next."""
        for part in parts:
            self.until(self._until_s + part.seconds, part.category, part.cause)

    def release(self, t_s: float) -> None:
        """Give the GPUs back; t_s is where the accounts stand but for rounding."""
        if self._lease is not None:
            self._leases.end(self._lease, t_s)
            self._lease = None

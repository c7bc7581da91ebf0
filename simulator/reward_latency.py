"""How long the reward of a trajectory takes: as long for each, or drawn from a lognormal."""

import math
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Discriminator, Field, Tag, model_validator
from scipy.special import ndtri

from rollsim.simulator.length_body import Floats
from rollsim.simulator.profile_parts import Part, Seconds
from rollsim.simulator.rng import Streams

STREAM = "reward.latency"
SomeSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LognormalSeconds(Part):
    """A lognormal by its median and 99th percentile [s]; what takes longer than `timeout_s` ends there."""

    median_s: SomeSeconds
    p99_s: SomeSeconds
    timeout_s: SomeSeconds | None = None

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if self.p99_s < self.median_s:
            raise ValueError(f"p99_s must be at least median_s, given {self.p99_s} and {self.median_s}")
        return self

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm: the 99th percentile is median exp(sigma z), z = 2.326."""
        return math.log(self.p99_s / self.median_s) / float(ndtri(0.99))


def _kind(given: Any) -> str:
    return "lognormal" if isinstance(given, dict | LognormalSeconds) else "constant"


RewardSeconds = Annotated[
    Annotated[Seconds, Tag("constant")] | Annotated[LognormalSeconds, Tag("lognormal")], Discriminator(_kind)
]


class RewardLatency:
    """Seconds from the end of a trajectory to its reward.

    A draw depends on prompt, visit and sample alone, so that every policy meets the same one (INV-11); of the length
    and of the reward it is independent, and a visit that meets its responses again scores them anew.

    Parameters
    ----------
    law : float or LognormalSeconds
        Seconds of each, or what they are drawn from.
    streams : Streams
        Random streams; the one used is ``reward.latency``.
    """

    def __init__(self, law: float | LognormalSeconds, streams: Streams) -> None:
        self.law, self.streams = law, streams

    def draw(self, prompt: ArrayLike, visit: ArrayLike, sample: ArrayLike) -> float | Floats:
        """Latencies [s] of trajectories by key, whole numbers that broadcast together; one number if it is constant."""
        if not isinstance(self.law, LognormalSeconds):
            return self.law
        drawn = self.law.median_s * np.exp(self.law.sigma * self.streams.normal(STREAM, prompt, visit, sample))
        return drawn if self.law.timeout_s is None else np.minimum(drawn, self.law.timeout_s)

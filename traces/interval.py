"""A mean with its confidence interval."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """Mean of `n` values, and the ends of its interval at `LEVEL`; None where n does not allow one."""

    n: int
    mean: float | None
    low: float | None
    high: float | None

    @property
    def half_width(self) -> float | None:
        """From the mean to either end."""
        return None if self.mean is None or self.high is None else self.high - self.mean

    def scaled(self, factor: float) -> "Interval":
        """Return the same in a unit that is 1 / factor as large; factor is positive."""
        ends = (None if value is None else value * factor for value in (self.mean, self.low, self.high))
        return Interval(self.n, *ends)


def interval(values: np.ndarray) -> Interval:
    """Mean and t interval, mean -/+ t(n - 1) s / sqrt(n), of values taken as independent; NaN entries are left out.

    With one value there is a mean and no interval.
    """
    known = np.asarray(values, dtype=float)
    known = known[~np.isnan(known)]
    n = len(known)
    if not n:
        return Interval(0, None, None, None)
    mean = float(known.mean())
    if n == 1:
        return Interval(1, mean, None, None)
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * float(known.std(ddof=1)) / math.sqrt(n)
    return Interval(n, mean, mean - half, mean + half)

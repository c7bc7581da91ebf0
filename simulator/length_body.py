"""The body of a length law: a mixture of lognormals, its distribution, mean and quantiles."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from rollsim.simulator.length_law import Lognormal

# A uniform of 52 bits has a normal score within +-8.3, and beyond that nothing is ever drawn.
SCORE_END = 8.3
_TABLE_POINTS = 8192

Floats = NDArray[np.float64]


class Body:
    """Mixture of lognormals with an atom at infinity.

    Parameters
    ----------
    parts
        Lognormals, weights adding up to 1.
    runaway_share
        Share of the whole that is infinite, 0 to below 1.
    """

    def __init__(self, parts: tuple[Lognormal, ...], runaway_share: float = 0.0) -> None:
        self.weight = np.array([part.weight for part in parts])
        self.weight = self.weight / self.weight.sum()
        self.mu = np.log([part.median_tokens for part in parts])
        self.sigma = np.array([part.sigma for part in parts])
        self.runaway_share = runaway_share
        log_tokens = np.linspace(
            (self.mu - (SCORE_END + 1) * self.sigma).min(),
            (self.mu + (SCORE_END + 1) * self.sigma).max(),
            _TABLE_POINTS,
        )
        score = self.score(log_tokens)
        usable = np.isfinite(score) & (np.diff(score, prepend=-np.inf) > 1e-12)
        self._score, self._log_tokens = score[usable], log_tokens[usable]

    def survival(self, log_tokens: ArrayLike) -> Floats:
        """Chance of a length above exp(`log_tokens`), runaways included."""
        return self.runaway_share + (1 - self.runaway_share) * self._mix(-self._standard(log_tokens))

    def distribution(self, log_tokens: ArrayLike) -> Floats:
        """Chance of a length of at most exp(`log_tokens`)."""
        return (1 - self.runaway_share) * self._mix(self._standard(log_tokens))

    def score(self, log_tokens: ArrayLike) -> Floats:
        """Normal score of a length: the standard normal quantile of its distribution, exact in both tails."""
        below, above = self.distribution(log_tokens), self.survival(log_tokens)
        return np.where(below < 0.5, ndtri(below), -ndtri(above))

    def log_quantile(self, score: ArrayLike) -> Floats:
        """Logarithm of the length at normal scores; infinite for runaways.

        From a table, linear in the score: exact for one lognormal without runaways, else to about 1e-6 of the length.
        """
        found = np.interp(np.asarray(score), self._score, self._log_tokens)
        if self.runaway_share:
            found = np.where(np.asarray(score) >= -ndtri(self.runaway_share), np.inf, found)
        return found

    def mean(self, cap_tokens: float) -> float:
        """Mean length [tokens] with all that is longer cut at the cap.

        For one lognormal E min(X, c) = exp(mu + s**2/2) Phi((ln c - mu)/s - s) + c Phi(-(ln c - mu)/s).
        """
        z = (math.log(cap_tokens) - self.mu) / self.sigma
        parts = np.exp(self.mu + self.sigma**2 / 2) * ndtr(z - self.sigma) + cap_tokens * ndtr(-z)
        return float((1 - self.runaway_share) * self.weight @ parts + self.runaway_share * cap_tokens)

    def _standard(self, log_tokens: ArrayLike) -> Floats:
        return (np.asarray(log_tokens, np.float64)[..., None] - self.mu) / self.sigma

    def _mix(self, standard: Floats) -> Floats:
        return ndtr(standard) @ self.weight

"""Lengths under a law: from effects of prompt and response to tokens, and what the law says about them.

A length is a pure function of the two effects (standard normals) and of the version of the weights that starts the
response. So another law or version gives another length for the same draw, and a policy never changes a draw (INV-11).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import trapezoid
from scipy.special import ndtr, ndtri

from rollsim.simulator.length_body import Body, Floats
from rollsim.simulator.length_law import LengthLaw

_GRID_TOKENS = 1024
_EFFECT_END, _EFFECTS = 8.5, 851
# Above it, responses to a prompt differ by less than the grid of effects resolves, and count as equal.
_ALL_PROMPT = 0.999


class Tokens(NamedTuple):
    """Lengths [tokens], int64, at least 1, and whether each was cut at the cap."""

    tokens: NDArray[np.int64]
    truncated: NDArray[np.bool_]


class Lengths:
    """The lengths of a law.

    Parameters
    ----------
    law
        The law.
    cap_tokens
        Another cap than the law's: the body stays, more or less of it is cut.
    """

    def __init__(self, law: LengthLaw, cap_tokens: int | None = None) -> None:
        self.law = law
        self.cap_tokens = law.cap_tokens if cap_tokens is None else cap_tokens
        self.body = Body(law.body, law.runaway_share)
        self._own, self._common = math.sqrt(1 - law.prompt_share), math.sqrt(law.prompt_share)
        self._versions = np.array([knot.version for knot in law.drift] or [0])
        self._log_factors = np.log([knot.factor for knot in law.drift] or [1.0])

    def draw(self, prompt_effect: ArrayLike, sample_effect: ArrayLike, version: ArrayLike = 0) -> Tokens:
        """Lengths of responses.

        Parameters
        ----------
        prompt_effect, sample_effect
            Standard normals of the prompt and of the response.
        version
            Version of the weights that starts each response.
        """
        return self.at_score(self.score(prompt_effect, sample_effect), version)

    def score(self, prompt_effect: ArrayLike, sample_effect: ArrayLike) -> Floats:
        """Standard normal of a response, from those of its prompt and its own."""
        return self._common * np.asarray(prompt_effect) + self._own * np.asarray(sample_effect)

    def at_score(self, score: ArrayLike, version: ArrayLike = 0) -> Tokens:
        """Lengths at normal scores, rounded to whole tokens."""
        natural = np.exp(self.body.log_quantile(score) + self.log_factor(version))
        cut = np.clip(natural, 1, self.cap_tokens)
        return Tokens(np.rint(cut).astype(np.int64), natural >= self.cap_tokens)

    def log_factor(self, version: ArrayLike) -> Floats:
        """Logarithm of the drift's factor: linear between the knots, constant before the first and after the last."""
        return np.interp(np.asarray(version), self._versions, self._log_factors)

    def quantile(self, share: ArrayLike, version: int = 0) -> Floats:
        """Length [tokens] that a share of the responses do not exceed, not rounded."""
        natural = np.exp(self.body.log_quantile(ndtri(share)) + self.log_factor(version))
        return np.minimum(natural, self.cap_tokens)

    def share_up_to(self, tokens: ArrayLike, version: int = 0) -> Floats:
        """Share of the responses that are at most so long, not rounded; 1 from the cap on."""
        below = self.body.distribution(np.log(tokens) - self.log_factor(version))
        return np.where(np.asarray(tokens) >= self.cap_tokens, 1.0, below)

    def cap_share(self, version: int = 0) -> float:
        """Share of the responses that are cut at the cap."""
        return float(self.body.survival(math.log(self.cap_tokens) - self.log_factor(version)))

    def mean(self, version: int = 0) -> float:
        """Mean length [tokens], not rounded."""
        factor = math.exp(float(self.log_factor(version)))
        return factor * self.body.mean(self.cap_tokens / factor)

    def expected_maximum(self, groups: int, group_size: int = 1, version: int = 0) -> float:
        """Expected length [tokens] of the longest of `groups` times `group_size` responses.

        Groups are independent, responses of a group only given their prompt's effect a:
        E max = integral over x of 1 - (E_a F(x | a)**G)**P, with F(x | a) = Phi((z(x) - a sqrt(r)) / sqrt(1 - r)).
        """
        tokens = np.geomspace(1e-3, self.cap_tokens, _GRID_TOKENS)
        score = self.body.score(np.log(tokens) - self.log_factor(version))
        if group_size == 1 or self.law.prompt_share > _ALL_PROMPT:
            group = ndtr(score)
        else:
            effect = np.linspace(-_EFFECT_END, _EFFECT_END, _EFFECTS)
            density = np.exp(-(effect**2) / 2)
            given = ndtr((score[:, None] - self._common * effect) / self._own)
            group = given**group_size @ (density / density.sum())
        return float(trapezoid(1 - group**groups, tokens) + tokens[0])

"""Families of length distributions, fitted to lengths of which some are cut: maximum likelihood with right censoring.

A length that was cut at the cap counts with the chance to be at least as long, not with that of being as long; a share
`a` of the responses may never end by themselves (an atom at infinity):

    log L = sum over ended log((1 - a) f(x)) + sum over cut log(a + (1 - a) S(cap))

(Klein and Moeschberger, Survival Analysis, 2003, section 3.5; Boag's model of a cured share, J. R. Stat. Soc. B 11,
1949). Lengths are whole tokens and taken as continuous.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, gammaincc, gammaln, log_ndtr, logit

from rollsim.simulator.length_law import Lognormal

Floats = NDArray[np.float64]
FAMILIES = ("lognormal", "gamma", "weibull", "2 lognormals", "3 lognormals")
_SIGMA = (1e-2, 4.5)
_SHIFTS = (-1.0, 0.7)
_SMALLEST = 1e-300


@dataclass(frozen=True)
class Observed:
    """Lengths with how often each was seen: of responses that ended, and of those that were cut [tokens]."""

    tokens: Floats
    counts: Floats
    cut_tokens: Floats
    cut_counts: Floats

    @classmethod
    def of(cls, tokens: NDArray, cut: NDArray) -> "Observed":
        """Count lengths, array [responses], `cut` where they were."""
        ended, counts = np.unique(tokens[~cut].astype(float), return_counts=True)
        at, cut_counts = np.unique(tokens[cut].astype(float), return_counts=True)
        return cls(ended, counts.astype(float), at, cut_counts.astype(float))

    @property
    def n(self) -> float:
        """Responses."""
        return float(self.counts.sum() + self.cut_counts.sum())


@dataclass(frozen=True)
class Candidate:
    """A fitted distribution.

    Attributes
    ----------
    family
        A name in `FAMILIES`.
    atom
        Whether a share of the responses never ends.
    values
        Its parameters: of a mixture the logits of all weights but the first, means and log spreads of the logarithm;
        else log shape and log scale.
    runaway_share
        That share; 0 without an atom.
    """

    family: str
    atom: bool
    values: Floats
    runaway_share: float

    @property
    def name(self) -> str:
        """In reports."""
        return f"{self.family} + atom" if self.atom else self.family

    @property
    def parameters(self) -> int:
        """How many are free."""
        return len(self.values) + self.atom

    def log_likelihoods(self, tokens: NDArray, cut: NDArray) -> Floats:
        """Of each response, array [responses]."""
        density, survival = _logs(self.family, self.values, np.asarray(tokens, dtype=float))
        return _with_atom(density, survival, np.asarray(cut), self.runaway_share)

    def parts(self) -> tuple[Lognormal, ...] | None:
        """Lognormals in the order of their medians, as a law has them; None for a family that is none of these."""
        if "lognormal" not in self.family:
            return None
        weight, mu, sigma = _unpacked(self.values)
        rounded = [round(float(weight[i]), 6) for i in np.argsort(mu)[:-1]]
        weights = [*rounded, round(1 - sum(rounded), 6)]
        return tuple(
            Lognormal(weight=w, median_tokens=float(np.exp(mu[i])), sigma=float(sigma[i]))
            for w, i in zip(weights, np.argsort(mu), strict=True)
        )


def candidates(seen: Observed) -> Iterator[Candidate]:
    """Fit every family, and with an atom where some responses were cut."""
    for family in FAMILIES:
        for atom in (False, True) if seen.cut_counts.sum() else (False,):
            yield fit(seen, family, atom=atom)


def fit(seen: Observed, family: str, *, atom: bool) -> Candidate:
    """Fit one family: the best of several starts."""
    cut_share = seen.cut_counts.sum() / seen.n
    found = None
    for start in _starts(seen, family):
        begin = np.r_[start, logit(max(cut_share / 2, 1e-4))] if atom else start
        result = minimize(_loss, begin, args=(seen, family, atom), method="L-BFGS-B", bounds=_bounds(family, atom))
        if found is None or result.fun < found.fun:
            found = result
    assert found is not None
    values = found.x[:-1] if atom else found.x
    return Candidate(family, atom, values, float(expit(found.x[-1])) if atom else 0.0)


def _loss(given: Floats, seen: Observed, family: str, atom: bool) -> float:
    values, share = (given[:-1], float(expit(given[-1]))) if atom else (given, 0.0)
    density, _ = _logs(family, values, seen.tokens)
    _, survival = _logs(family, values, seen.cut_tokens)
    ended = _with_atom(density, density, np.zeros(len(density), bool), share)
    cut = _with_atom(survival, survival, np.ones(len(survival), bool), share)
    return -float(seen.counts @ ended + seen.cut_counts @ cut) / seen.n


def _with_atom(density: Floats, survival: Floats, cut: NDArray, share: float) -> Floats:
    if share == 0:
        return np.where(cut, survival, density)
    return np.where(cut, np.logaddexp(np.log(share), np.log1p(-share) + survival), np.log1p(-share) + density)


def _logs(family: str, values: Floats, tokens: Floats) -> tuple[Floats, Floats]:
    """Logarithms of density and survival at lengths."""
    x = np.log(tokens)
    if family == "gamma":
        shape, scale = np.exp(values)
        density = (shape - 1) * x - tokens / scale - gammaln(shape) - shape * np.log(scale)
        return density, np.log(np.maximum(gammaincc(shape, tokens / scale), _SMALLEST))
    if family == "weibull":
        shape, scale = np.exp(values)
        grown = np.exp(np.minimum(shape * (x - np.log(scale)), 600.0))
        return np.log(shape) - x + shape * (x - np.log(scale)) - grown, -grown
    weight, mu, sigma = _unpacked(values)
    z = (x - mu[:, None]) / sigma[:, None]
    density = -(z**2) / 2 + np.log(weight / sigma)[:, None] - np.log(2 * np.pi) / 2 - x
    survival = log_ndtr(-z) + np.log(weight)[:, None]
    return np.logaddexp.reduce(density), np.logaddexp.reduce(survival)


def _unpacked(values: Floats) -> tuple[Floats, Floats, Floats]:
    count = (len(values) + 1) // 3
    odds = np.exp(np.r_[0.0, values[: count - 1]])
    return odds / odds.sum(), values[count - 1 : 2 * count - 1], np.exp(values[2 * count - 1 :])


def _starts(seen: Observed, family: str) -> Iterator[Floats]:
    logs, counts = np.log(np.r_[seen.tokens, seen.cut_tokens]), np.r_[seen.counts, seen.cut_counts]
    mean = float(np.average(logs, weights=counts))
    spread = max(float(np.sqrt(np.average((logs - mean) ** 2, weights=counts))), 0.05)
    if family in ("gamma", "weibull"):
        yield np.array([np.log(1 / spread), mean + spread**2 / 2])
        return
    count = 1 if family == "lognormal" else int(family[0])
    plain = np.r_[np.zeros(count - 1), np.full(count, mean), np.full(count, np.log(spread))]
    if count == 1:
        yield plain
        return
    for shift in _SHIFTS:
        for narrow in (0.2, 0.7):
            start = plain.copy()
            start[count - 1 : 2 * count - 1] += shift * spread * np.arange(count)
            start[2 * count - 1 :] -= narrow
            yield start


def _bounds(family: str, atom: bool) -> list[tuple[float, float]]:
    sigma = (float(np.log(_SIGMA[0])), float(np.log(_SIGMA[1])))
    if family in ("gamma", "weibull"):
        found = [(-4.0, 6.0), (-3.0, 20.0)]
    else:
        count = 1 if family == "lognormal" else int(family[0])
        found = [(-6.0, 6.0)] * (count - 1) + [(-2.0, 16.0)] * count + [sigma] * count
    return [*found, (-14.0, 6.0)] if atom else found

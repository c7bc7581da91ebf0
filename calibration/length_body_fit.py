"""Fits a mixture of lognormals with an atom to quantiles, censored at the cap."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares
from scipy.special import ndtr, ndtri

from rollsim.simulator.length_body import Body
from rollsim.simulator.length_law import Lognormal

_GRID = 4001
# Relative misfit of a quantile above which it counts linearly, so that one wrong number cannot bend the whole fit.
_ROBUST = 0.05
# Weight of a pull towards one plain lognormal: far below a misfit of 1 %, it only settles what the data leave open.
_PULL = 0.003
_SHIFTS = (-0.8, 0.8, 1.5)
_LOGITS = (-2.5, -1.0, 0.0, 1.0)
_SIGMA_LOW, _SIGMA_HIGH = 0.05, 2.7
_ROUNDS, _CLOSE = 20, 1e-6


def fit_body(
    shares: Sequence[float], tokens: Sequence[float], components: int, cap_tokens: int, cap_share: float | None
) -> tuple[tuple[Lognormal, ...], float]:
    """Fit a body to quantiles.

    Parameters
    ----------
    shares, tokens
        Quantiles below the cap.
    components
        Lognormals; free parameters are 3 times as many less one.
    cap_tokens, cap_share
        Cap, and the share of responses cut there if it is to be met exactly: what the body leaves of it are runaways.

    Returns
    -------
    tuple
        Lognormals in the order of their medians, and the share of runaways.
    """
    share, log_tokens = np.asarray(shares), np.log(tokens)
    start = _fit(share, log_tokens, components, None)
    parts, runaway = _parts(start), 0.0
    if cap_share is None:
        return parts, runaway
    for _ in range(_ROUNDS):
        tail = float(Body(parts).survival(math.log(cap_tokens)))
        before, runaway = runaway, max(0.0, (cap_share - tail) / (1 - tail))
        if abs(runaway - before) < _CLOSE:
            break
        start = _fit(share / (1 - runaway), log_tokens, components, start)
        parts = _parts(start)
    return parts, runaway


def _fit(share: np.ndarray, log_tokens: np.ndarray, components: int, start: np.ndarray | None) -> np.ndarray:
    """Parameters: logits of all weights but the first, means and log standard deviations of the logarithm."""
    middle = float(np.interp(0.5, share, log_tokens))
    spread = float(np.polyfit(ndtri(share), log_tokens, 1)[0])
    plain = np.r_[np.zeros(components - 1), np.full(components, middle), np.full(components, math.log(spread))]
    low, high = (
        np.r_[np.full(components - 1, -6 * sign), np.full(components, edge), np.full(components, math.log(sigma))]
        for sign, edge, sigma in ((1, 0.0, _SIGMA_LOW), (-1, 13.0, _SIGMA_HIGH))
    )
    grid = np.linspace(log_tokens[0] - 3, log_tokens[-1] + 3, _GRID)

    def misfit(parameters: np.ndarray) -> np.ndarray:
        weight, mu, sigma = _unpacked(parameters)
        distribution = ndtr((grid[:, None] - mu) / sigma) @ weight
        return np.r_[np.interp(share, distribution, grid) - log_tokens, _PULL * (parameters - plain)]

    starts = [start] if start is not None else _starts(plain, components)
    found = [
        least_squares(misfit, np.clip(s, low + 1e-6, high - 1e-6), bounds=(low, high), loss="soft_l1", f_scale=_ROBUST)
        for s in starts
    ]
    return min(found, key=lambda result: result.cost).x


def _starts(plain: np.ndarray, components: int) -> list[np.ndarray]:
    if components == 1:
        return [plain]
    made = []
    for logit in _LOGITS:
        for shift in _SHIFTS:
            start = plain.copy()
            start[: components - 1] = logit
            start[components - 1 : 2 * components - 1] += shift * np.arange(components)
            start[2 * components - 1 :] -= 0.3
            made.append(start)
    return made


def _unpacked(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    components = (len(parameters) + 1) // 3
    odds = np.exp(np.r_[0.0, parameters[: components - 1]])
    return odds / odds.sum(), parameters[components - 1 : 2 * components - 1], np.exp(parameters[2 * components - 1 :])


def _parts(parameters: np.ndarray) -> tuple[Lognormal, ...]:
    weight, mu, sigma = _unpacked(parameters)
    return tuple(
        Lognormal(weight=float(weight[i]), median_tokens=math.exp(mu[i]), sigma=float(sigma[i])) for i in np.argsort(mu)
    )

"""Cost tables from measured steps: one robust, non-negative, monotone linear fit of all terms together.

A step of n tokens takes ``decode(n)``, or ``mixed(n)`` with prefill in it, + kv_read x KV tokens + attn x token pairs
(`rollsim.simulator.costs`), and before them what the host takes in every step, where that was measured apart. Both
functions are linear between knots and never fall, which is a sum of ramps with non-negative heights; so all terms are
columns of one non-negative least-squares problem (Lawson and Hanson, 1974). Rows are weighted by 1 / time, since
relative errors count, and again by Huber's weights (1964) at 1.345 robust standard deviations, until these settle.
Outliers of a machine are slow ones: the fit lies below the mean, and all terms are multiplied by what the steps took in
all over what they should have taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import nnls

from rollsim.calibration.step_features import Features
from rollsim.traces.errors import BadInput, Fault

_HUBER = 1.345
_NORMAL_MAD = 1.4826
_ROUNDS = 50
_SETTLED = 1e-6
# Steps that a knot needs, and knots of the prefill function.
_STEPS_PER_KNOT = 5
PREFILL_KNOTS = 6
# A term of which less than this is its own cannot be told from the others.
_OWN_SHARE = 1e-3
# So many times what the host takes in every step, or it may be the host that a step waits for.
_HIDDEN = 1.2


@dataclass(frozen=True)
class StepFit:
    """Fitted terms.

    Attributes
    ----------
    decode_batch, decode_s : array
        Knots of the decode function and its seconds there.
    prefill_tokens, prefill_s : array
        Of the function of steps with prefill.
    kv_read_s, attn_s : float
        Seconds per KV token and per token pair.
    covariance : array [n, n]
        Of `values`; a term at its bound of 0 counts as known.
    mean_over_fit : float
        By what all terms were multiplied.
    downweighted : int
        Rows that count for less than they would.
    host_s : float
        Part of every step that was measured apart, and not fitted.
    overlap : bool
        The host works while the model does: a step lasts as long as the longer of both.
    """

    decode_batch: np.ndarray
    decode_s: np.ndarray
    prefill_tokens: np.ndarray
    prefill_s: np.ndarray
    kv_read_s: float
    attn_s: float
    covariance: np.ndarray
    mean_over_fit: float
    downweighted: int
    host_s: float = 0.0
    overlap: bool = False

    @property
    def values(self) -> np.ndarray:
        """All of them: decode, prefill, kv_read, attn."""
        return np.concatenate([self.decode_s, self.prefill_s, [self.kv_read_s, self.attn_s]])

    def seconds(self, steps: Features) -> np.ndarray:
        """Fitted time of each step [s]."""
        decode = np.interp(steps.tokens, self.decode_batch, self.decode_s)
        mixed = np.interp(steps.tokens, self.prefill_tokens, self.prefill_s)
        dense = np.where(steps.prefill, mixed, decode)
        model_s = dense + self.kv_read_s * steps.kv_tokens + self.attn_s * steps.pairs
        return np.maximum(self.host_s, model_s) if self.overlap else self.host_s + model_s


def fit_steps(
    steps: Features,
    seconds: np.ndarray,
    file: str,
    host_s: float = 0.0,
    prefill_knots: int = PREFILL_KNOTS,
    *,
    overlap: bool = False,
) -> StepFit:
    """Fit all terms.

    Parameters
    ----------
    steps, seconds
        One entry per measured step; seconds are above `host_s`.
    file : str
        Named in faults.
    host_s : float
        What of every step the host took [s].
    prefill_knots : int
        Most knots of the function of steps with prefill.
    overlap : bool
        That is not part of a step but beside it: steps in which it may have been the longer are left out.

    Raises
    ------
    BadInput
        The steps cannot tell some term; says which measurement would.
    """
    if overlap:
        told = seconds > _HIDDEN * host_s
        steps, seconds = Features(*(column[told] for column in steps)), seconds[told]
    decode_batch, prefill_tokens = _decode_knots(steps), _prefill_knots(steps, prefill_knots)
    faults = list(_missing(steps, decode_batch, prefill_tokens, file))
    if faults:
        raise BadInput(faults)
    pure, mixed = ~steps.prefill[:, None], steps.prefill[:, None]
    design = np.hstack(
        [
            pure * _ramps(steps.tokens, decode_batch),
            mixed * _ramps(steps.tokens, prefill_tokens),
            steps.kv_tokens[:, None],
            steps.pairs[:, None],
        ]
    )
    model_s = seconds if overlap else seconds - host_s
    relative = design / model_s[:, None]
    faults = list(_confounded(relative, file))
    if faults:
        raise BadInput(faults)
    heights, weights, variance = _huber(relative)
    factor = float(model_s.sum() / (design @ heights).sum())
    n, m = len(decode_batch), len(prefill_tokens)
    to_values = np.eye(n + m + 2)
    to_values[:n, :n] = np.tri(n)
    to_values[n : n + m, n : n + m] = np.tri(m)
    values = factor * to_values @ heights
    covariance = factor**2 * to_values @ _covariance(relative, heights, weights, variance) @ to_values.T
    return StepFit(
        decode_batch,
        values[:n],
        prefill_tokens,
        values[n : n + m],
        float(values[-2]),
        float(values[-1]),
        covariance,
        factor,
        int((weights < 1).sum()),
        host_s,
        overlap,
    )


def _ramps(at: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """A column of ones, and for each further knot one that rises from 0 to 1 between it and the knot before."""
    rising = [np.clip((at - low) / (high - low), 0.0, 1.0) for low, high in pairwise(knots)]
    return np.stack([np.ones(len(at)), *rising], axis=1)


def _decode_knots(steps: Features) -> np.ndarray:
    """Batch sizes of pure decode: powers of two and the ends, where there are enough steps."""
    sizes, counts = np.unique(steps.tokens[~steps.prefill], return_counts=True)
    known = sizes[counts >= _STEPS_PER_KNOT]
    if not len(known):
        return known
    power = (known & (known - 1)) == 0
    return known[power | (known == known[0]) | (known == known[-1])]


def _prefill_knots(steps: Features, most: int) -> np.ndarray:
    """Token counts of steps with prefill, in equal shares of the logarithm, each with enough steps around it."""
    tokens = np.sort(steps.tokens[steps.prefill])
    if len(tokens) < 2 * _STEPS_PER_KNOT or tokens[0] == tokens[-1]:
        return tokens[:1]
    wanted = np.geomspace(tokens[0], tokens[-1], most)
    knots = [int(tokens[0])]
    for at in wanted[1:]:
        knot = int(tokens[np.argmin(np.abs(tokens - at))])
        if ((tokens > knots[-1]) & (tokens <= knot)).sum() >= _STEPS_PER_KNOT:
            knots.append(knot)
    if knots[-1] != tokens[-1]:
        knots = [*knots[:-1], int(tokens[-1])] if len(knots) > 1 else [knots[0], int(tokens[-1])]
    return np.array(knots)


def _missing(steps: Features, decode_batch: np.ndarray, prefill_tokens: np.ndarray, file: str) -> Iterator[Fault]:
    if len(decode_batch) < 2:
        said = f"{len(decode_batch)} batch sizes with {_STEPS_PER_KNOT} steps of pure decode"
        allowed = "two or more: measure full batches of several sizes (full_*)"
        yield Fault(file, "decode", said, allowed, message="the time of a decode step by its batch cannot be told")
    if len(prefill_tokens) < 2:
        said = f"{int(steps.prefill.sum())} steps with prefill"
        allowed = f"{2 * _STEPS_PER_KNOT} or more of different sizes: measure prompts of several lengths (prefill_*)"
        yield Fault(file, "prefill", said, allowed, message="the time of a step with prefill cannot be told")


def _confounded(relative: np.ndarray, file: str) -> Iterator[Fault]:
    """KV reads and token pairs that rise and fall with other terms."""
    cures = {
        "kv_read": "decode steps of one batch size with short and with long contexts: measure long_decode",
        "attn": "prefill chunks of one size after few and after many computed tokens: measure prefill_chunks",
    }
    for at, (name, cure) in zip((-2, -1), cures.items(), strict=True):
        column = relative[:, at]
        others = np.delete(relative, at % relative.shape[1], axis=1)
        solution, *_ = np.linalg.lstsq(others, column, rcond=None)
        own = np.linalg.norm(column - others @ solution)
        if own <= _OWN_SHARE * np.linalg.norm(column) or not column.any():
            yield Fault(file, name, allowed=cure, message="cannot be told from the other terms")


def _huber(relative: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Heights, the weights of the rows, and the robust variance of a relative residual."""
    wanted = np.ones(len(relative))
    weights = wanted.copy()
    heights, spread = np.zeros(relative.shape[1]), 0.0
    scale = np.maximum(np.linalg.norm(relative, axis=0), 1e-300)
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        found, _ = nnls(relative / scale * root[:, None], wanted * root, maxiter=50 * relative.shape[1])
        found = found / scale
        residual = relative @ found - wanted
        spread = max(_NORMAL_MAD * float(np.median(np.abs(residual - np.median(residual)))), 1e-12)
        weights = np.minimum(1.0, _HUBER * spread / np.maximum(np.abs(residual), 1e-300))
        settled = np.allclose(found, heights, rtol=_SETTLED, atol=0.0)
        heights = found
        if settled:
            break
    return heights, weights, spread**2


def _covariance(relative: np.ndarray, heights: np.ndarray, weights: np.ndarray, variance: float) -> np.ndarray:
    """Covariance of the heights above 0: variance (A' W A)^-1."""
    free = heights > 0
    inner = relative[:, free]
    covariance = np.zeros((len(heights), len(heights)))
    covariance[np.ix_(free, free)] = variance * np.linalg.pinv(inner.T @ (weights[:, None] * inner))
    return covariance


def stacked(parts: Sequence[Features]) -> Features:
    """Steps of several batches after one another."""
    return Features(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

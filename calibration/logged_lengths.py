"""Lengths of a batch of which a log tells the mean and the longest alone.

Taken as a lognormal that is cut at the longest, L: its quantile at 1 - q, where q is the share that the log calls cut,
at least half a response. The batch is the mid-quantiles of that law, and its spread is the one that makes their mean
the logged one; the mean falls as the spread grows, so that there is one.
"""

import numpy as np
from scipy.optimize import root_scalar
from scipy.special import ndtri

_WIDEST = 1e6


def spread_lengths(mean: float, longest: int, cut_share: float, count: int) -> np.ndarray:
    """Lengths of `count` responses, rising, shape (count,) [tokens].

    Parameters
    ----------
    mean, longest
        Of the batch [tokens].
    cut_share
        Share of the responses that were cut at the longest; 0 if none was, or nothing is known.
    count
        Responses of the batch.

    Raises
    ------
    ValueError
        No lengths have this mean: it is above the longest, or below what the cut ones alone make.
    """
    share = min(max(cut_share, 0.5 / count), 1.0)
    scores = ndtri((np.arange(count) + 0.5) / count) - ndtri(1 - share)

    def lengths(s: float) -> np.ndarray:
        return np.clip(longest * np.exp(s * np.minimum(scores, 0.0)), 1.0, longest)

    if mean == longest:
        return np.full(count, longest, dtype=np.int64)
    if not 0 < mean < longest or share == 1 or lengths(_WIDEST).mean() > mean:
        raise ValueError(f"a mean of {mean:,.1f} tokens, the longest {longest:,}, and {share:.1%} as long as that")
    spread = root_scalar(lambda s: lengths(s).mean() - mean, bracket=(0.0, _WIDEST)).root
    return np.rint(lengths(spread)).astype(np.int64)

"""The non-decreasing sequence closest to a given one."""

import numpy as np
from numpy.typing import NDArray


def non_decreasing(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pool adjacent violators, minimizing squared *relative* change: a pooled run takes its 1/v^2-weighted mean.

    Parameters
    ----------
    values : array [n]
        Non-negative.

    Returns
    -------
    array [n]
        Equal to `values` where they already rise.
    """
    floor = 1e-12 * max(1.0, float(values.max(initial=0.0)))
    pools: list[tuple[float, float, int]] = []
    for value in values:
        pools.append((float(value), 1.0 / max(float(value), floor) ** 2, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (mean, weight, n), (last_mean, last_weight, last_n) = pools[-2:]
            total = weight + last_weight
            pools[-2:] = [((mean * weight + last_mean * last_weight) / total, total, n + last_n)]
    return np.concatenate([np.full(n, mean) for mean, _, n in pools])

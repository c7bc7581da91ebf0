"""Fitting decode steps: for each batch size, seconds = dense + kv_read * (KV tokens read).

Both are >= 0 and minimize the squared relative error (more robust fits had a worse 99th percentile on these tables).
Over the batch size, dense and kv_read * batch must not fall: one more sequence never makes a step shorter. Where the
rows say otherwise (kernels chosen by batch size), neighbors are pooled and the residuals show it.
"""

import numpy as np
from numpy.typing import NDArray

from rollsim.calibration.monotone import non_decreasing
from rollsim.calibration.rounding import rounded
from rollsim.calibration.step_table import Rows
from rollsim.simulator.profile_parts import DecodeTable
from rollsim.simulator.step_tables import kv_read_s

# Fewer contexts than this at a batch size do not tell dense from kv_read: kv_read is carried over from the batch below.
MIN_CONTEXTS = 3

Floats = NDArray[np.float64]


def fit_line(kv_tokens: Floats, step_s: Floats) -> tuple[float, float]:
    """Intercept and slope, both >= 0, that minimize the squared relative error."""
    weight = 1.0 / step_s**2
    w0, w1, w2 = weight.sum(), (weight * kv_tokens).sum(), (weight * kv_tokens**2).sum()
    y0, y1 = (weight * step_s).sum(), (weight * kv_tokens * step_s).sum()
    determinant = w0 * w2 - w1 * w1
    dense_s, kv_read = (w2 * y0 - w1 * y1) / determinant, (w0 * y1 - w1 * y0) / determinant
    if kv_read < 0:
        return float(y0 / w0), 0.0
    if dense_s < 0:
        return 0.0, float(y1 / w2)
    return float(dense_s), float(kv_read)


def fit_decode(rows: Rows) -> tuple[DecodeTable, float]:
    """Fit the decode table.

    Returns
    -------
    table : DecodeTable
        One row per batch size that occurs, as far as the smallest one is known at `MIN_CONTEXTS` contexts.
    monotone_shift : float
        Largest relative change of a dense time that the order over batch sizes asked for.
    """
    batch, dense, kv_read = [], [], []
    for size in np.unique(rows.batch):
        at = rows.where(rows.batch == size)
        kv_tokens = at.kv_tokens.astype(np.float64)
        if at.batch.size >= MIN_CONTEXTS:
            dense_s, slope_s = fit_line(kv_tokens, at.step_s)
        elif batch:
            slope_s = kv_read[-1]
            weight = 1.0 / at.step_s**2
            dense_s = max(0.0, float((weight * (at.step_s - slope_s * kv_tokens)).sum() / weight.sum()))
        else:
            continue
        batch.append(int(size))
        dense.append(dense_s)
        kv_read.append(slope_s)
    sizes, raw = np.array(batch, dtype=np.float64), np.array(dense)
    ordered = non_decreasing(raw)
    slopes = np.array(
        [_slope_given_dense(rows, size, d, s) for size, d, s in zip(batch, ordered, kv_read, strict=True)]
    )
    slopes = non_decreasing(slopes * sizes) / sizes
    table = DecodeTable(
        batch=tuple(batch),
        dense_s=tuple(rounded(value) for value in ordered),
        kv_read_s=tuple(rounded(value) for value in slopes),
    )
    return table, rounded(float(np.max(np.abs(ordered / raw - 1))), 3)


def predict_decode(table: DecodeTable, rows: Rows) -> Floats:
    """Seconds of the rows' steps under the table; unpadded, as the rows were taken."""
    dense_s = np.interp(rows.batch, table.batch, table.dense_s)
    return dense_s + kv_read_s(table, rows.batch) * rows.kv_tokens


def _slope_given_dense(rows: Rows, size: int, dense_s: float, fitted: float) -> float:
    at = rows.where(rows.batch == size)
    if at.batch.size < MIN_CONTEXTS:
        return fitted
    weighted = at.kv_tokens / at.step_s**2
    return max(0.0, float((weighted * (at.step_s - dense_s)).sum() / (weighted * at.kv_tokens).sum()))

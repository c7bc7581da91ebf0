"""Fitting prefill steps: seconds = dense[tokens] + attn * pairs; B prompts of c tokens have B * c^2 / 2 pairs.

Rows with the same number of tokens and different prompt lengths tell the two apart; their relative error is minimized.
A token count that occurs once sets its own dense time, so only the others have residuals.
"""

import numpy as np
from numpy.typing import NDArray

from rollsim.calibration.monotone import non_decreasing
from rollsim.calibration.rounding import rounded
from rollsim.calibration.step_table import Rows
from rollsim.simulator.profile_parts import PrefillTable
from rollsim.simulator.step_tables import prefill_dense_s

Floats = NDArray[np.float64]


def pairs(rows: Rows) -> Floats:
    """Token pairs of each row: a chunk of n tokens after none computed has n * n / 2."""
    return rows.batch * rows.context_tokens.astype(np.float64) ** 2 / 2


def shared(rows: Rows) -> NDArray[np.bool_]:
    """Rows that share their number of tokens with another row."""
    _, inverse, count = np.unique(rows.kv_tokens, return_inverse=True, return_counts=True)
    return count[inverse] > 1


def fit_prefill(rows: Rows) -> PrefillTable:
    """Fit the prefill table: one row per token count; `attn_s` >= 0."""
    tokens, index = np.unique(rows.kv_tokens, return_inverse=True)
    weight, pair = 1.0 / rows.step_s**2, pairs(rows)

    def mean(values: Floats) -> Floats:
        return np.bincount(index, weight * values) / np.bincount(index, weight)

    # Within a token count the dense time is the same, so what is left of both sides gives the attention coefficient.
    step_left, pair_left = rows.step_s - mean(rows.step_s)[index], pair - mean(pair)[index]
    attn_s = rounded(max(0.0, float((weight * step_left * pair_left).sum() / (weight * pair_left**2).sum())))
    dense_s = non_decreasing(np.maximum(0.0, mean(rows.step_s - attn_s * pair)))
    return PrefillTable(
        tokens=tuple(int(value) for value in tokens),
        dense_s=tuple(rounded(value) for value in dense_s),
        attn_s=attn_s,
    )


def predict_prefill(table: PrefillTable, rows: Rows) -> Floats:
    """Seconds of the rows' steps under the table; unpadded, as the rows were taken."""
    return prefill_dense_s(table, rows.kv_tokens) + table.attn_s * pairs(rows)

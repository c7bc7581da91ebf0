"""How wrong a fit is: on the rows it was made from, by region, and on rows held out."""

import math

import numpy as np
from numpy.typing import NDArray

from rollsim.calibration.decode_fit import fit_decode, predict_decode
from rollsim.calibration.prefill_fit import fit_prefill, predict_prefill, shared
from rollsim.calibration.rounding import rounded
from rollsim.calibration.step_table import Rows
from rollsim.simulator.profile_parts import DecodeTable, Errors, PrefillTable

BATCH_REGIONS = ((1, 8), (16, 64), (128, 512))
CONTEXT_REGIONS = ((512, 2048), (4096, 8192), (16384, 32768))

Floats = NDArray[np.float64]


def errors(predicted_s: Floats, measured_s: Floats) -> Errors:
    """Summary of ``predicted / measured - 1``; the 99th percentile is the nearest rank."""
    signed = predicted_s / measured_s - 1
    size = np.sort(np.abs(signed))
    return Errors(
        n=size.size,
        median=rounded(float(np.median(size)), 3),
        p99=rounded(float(size[math.ceil(0.99 * size.size) - 1]), 3),
        worst=rounded(float(size[-1]), 3),
        signed_median=rounded(float(np.median(signed)), 3),
    )


def decode_errors(table: DecodeTable, rows: Rows) -> Errors:
    """Errors of the decode table on rows."""
    return errors(predict_decode(table, rows), rows.step_s)


def decode_regions(table: DecodeTable, rows: Rows) -> dict[str, Errors]:
    """Errors by region of batch size and context; regions without rows are left out."""
    found: dict[str, Errors] = {}
    for low, high in BATCH_REGIONS:
        for start, end in CONTEXT_REGIONS:
            inside = (rows.batch >= low) & (rows.batch <= high)
            inside &= (rows.context_tokens >= start) & (rows.context_tokens <= end)
            if inside.any():
                found[f"batch {low}-{high}, context {start}-{end}"] = decode_errors(table, rows.where(inside))
    return found


def prefill_errors(table: PrefillTable, rows: Rows) -> Errors:
    """Errors of the prefill table on the rows that do not set it alone."""
    kept = rows.where(shared(rows))
    return errors(predict_prefill(table, kept), kept.step_s)


def held_out(decode: Rows, prefill: Rows) -> dict[str, Errors]:
    """Errors on rows left out of the fit, one value of an axis at a time (not the ends: they would be extrapolated)."""
    found: dict[str, Errors] = {}
    for axis, values in (("context", decode.context_tokens), ("batch", decode.batch)):
        found[f"decode, one {axis} left out"] = _left_out(decode, values)
    tokens = prefill.kv_tokens
    predicted, measured = [], []
    for value in np.unique(tokens)[1:-1]:
        out = tokens == value
        predicted.append(predict_prefill(fit_prefill(prefill.where(~out)), prefill.where(out)))
        measured.append(prefill.step_s[out])
    found["prefill, one token count left out"] = errors(np.concatenate(predicted), np.concatenate(measured))
    return found


def _left_out(rows: Rows, values: NDArray[np.int64]) -> Errors:
    predicted, measured = [], []
    for value in np.unique(values)[1:-1]:
        out = values == value
        table, _ = fit_decode(rows.where(~out))
        kept = rows.where(out)
        inside = kept.batch <= table.batch[-1]
        predicted.append(predict_decode(table, kept.where(inside)))
        measured.append(kept.step_s[inside])
    return errors(np.concatenate(predicted), np.concatenate(measured))

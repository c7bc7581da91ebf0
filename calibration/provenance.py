"""What each part of a built profile rests on, and what a user of it should beware of."""

import numpy as np

from rollsim.calibration.decode_fit import MIN_CONTEXTS
from rollsim.calibration.step_table import Measured, Rows
from rollsim.simulator.profile_parts import Claim, DecodeTable, PrefillTable

# Beyond these a fit is worth a warning.
SHIFT_LIMIT = 0.05
SLOWER_LIMIT = 1.1


def claims(decode: DecodeTable, prefill: PrefillTable, rows: Rows) -> tuple[Claim, ...]:
    """One line per part; grades as in the trust section of the design. `rows` are the decode rows fitted to."""
    first, last = prefill.tokens[0], prefill.tokens[-1]
    few = [size for size in decode.batch if (rows.batch == size).sum() < MIN_CONTEXTS]
    carried = (
        f"; at batch {', '.join(map(str, few))} kv_read is that of the batch size below (too few rows)" if few else ""
    )
    mixed = (
        f"sum of the terms, never timed together: dense of all tokens (prefill table from {first} tokens on, "
        f"below it the decode table capped at the {first}-token prefill) + kv_read x KV tokens + attention x pairs"
    )
    lines = (
        ("decode step at the table's batch sizes", "fitted", f"dense + kv_read x KV tokens, per batch size{carried}"),
        ("decode step at other batch sizes", "predicted", "linear between batch sizes, after padding to graph sizes"),
        (
            f"decode step above batch {decode.batch[-1]}",
            "extrapolated",
            "dense grows as the prefill table does; kv_read of the last batch size",
        ),
        ("prefill-only step", "fitted", "dense by tokens + attention x token pairs"),
        (f"prefill step above {last} tokens", "extrapolated", "last slope of the dense table"),
        (
            "prefill chunk after computed tokens",
            "extrapolated",
            "the attention coefficient was fitted to whole prompts only",
        ),
        (
            "mixed prefill and decode step",
            "extrapolated",
            mixed,
        ),
        ("host time", "assumed", "0: the source times kernels only; the bias band holds its effect"),
        (
            "KV blocks",
            "computed",
            "memory formula with estimated reserves; put the engine's logged number here if known",
        ),
        ("engine limits", "computed", "defaults of the engine for this GPU"),
    )
    return tuple(Claim.model_validate({"part": part, "grade": grade, "how": how}) for part, grade, how in lines)


def cautions(measured: Measured, bf16: Measured | None, monotone_shift: float) -> tuple[str, ...]:
    """Warnings found by rule in the rows.

    Parameters
    ----------
    measured : Measured
        Rows of the profile.
    bf16 : Measured or None
        Rows of the same model, GPU and size in bf16, if the profile is in another precision.
    monotone_shift : float
        Largest relative change of a dense time made so that larger batches are never faster.
    """
    found = []
    if monotone_shift > SHIFT_LIMIT:
        found.append(
            f"the table has smaller batches that take longer than larger ones; "
            f"made non-decreasing, which moved a dense time by {monotone_shift:.0%}"
        )
    if bf16 is not None and bf16.decode.batch.size == measured.decode.batch.size:
        ratio = float(np.median(measured.decode.step_s / bf16.decode.step_s))
        if ratio > SLOWER_LIMIT:
            found.append(
                f"the table's decode steps are {ratio:.1f}x as slow as those in bf16 (median): "
                "a property of the source's kernels, not to be expected of a tuned engine"
            )
    return tuple(found)

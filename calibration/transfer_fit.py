"""Transfers as a fixed time and a rate: seconds = fixed + bytes / rate, fitted to relative errors, neither below 0.

Every other size is held out and says how wrong the line is. What the simulator takes of it: the rate between host and
device for switches of roles, and the broadcast over NCCL for the weight sync (`rollsim.simulator.sync_cost`).
"""

from typing import Any

import numpy as np
from scipy.optimize import nnls

from rollsim.calibration.residuals import errors
from rollsim.simulator.profile_parts import Rate, Sync, SyncPath, Value

FORMAT = "rollsim-transfer-timing"
SCHEMA_VERSION = 1
# Less of the longest time is no size.
_TOLD = 1e-6


def fit_line(sizes: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """Fixed seconds, and bytes per second; infinite where size does not matter."""
    design = np.stack([np.ones(len(sizes)), sizes], axis=1) / seconds[:, None]
    scale = np.linalg.norm(design, axis=0)
    (fixed_s, per_byte_s), _ = nnls(design / scale, np.ones(len(sizes)))
    fixed_s, per_byte_s = fixed_s / scale[0], per_byte_s / scale[1]
    told = per_byte_s * sizes.max() > _TOLD * seconds.max()
    return float(fixed_s), float(1 / per_byte_s) if told else float("inf")


def fit_transfers(timed: dict[str, Any]) -> dict[str, Any]:
    """Return what was timed with the line of each transfer, and the part of a profile that follows, as JSON."""
    lines = {}
    for name, timing in timed["timings"].items():
        if "not_timed" in timing:
            lines[name] = timing
            continue
        sizes, seconds = np.array(timing["sizes"], dtype=float), np.array(timing["seconds"])
        fitted = np.arange(len(sizes)) % 2 == 0
        fixed_s, rate = fit_line(sizes[fitted], seconds[fitted])
        predicted_s = fixed_s + sizes / rate
        lines[name] = timing | {
            "fixed_s": fixed_s,
            "bytes_per_s": rate if np.isfinite(rate) else None,
            "errors": {
                which: errors(predicted_s[rows], seconds[rows]).model_dump()
                for which, rows in (("fitted", fitted), ("held out", ~fitted))
            },
        }
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        **timed,
        "timings": lines,
        "sync": _sync(timed, lines).model_dump(mode="json", exclude_none=True),
    }


def _sync(timed: dict[str, Any], lines: dict[str, Any]) -> Sync:
    """What a profile takes of it: nothing of a machine without GPUs."""
    changed: dict[str, Any] = {}
    how = f"timed on {timed['device']['name']}"
    away, back = (lines.get(name, {}).get("bytes_per_s") for name in ("device_to_pinned", "pinned_to_device"))
    if away and back:
        both = 2 / (1 / away + 1 / back)
        changed["host_bytes_per_s"] = Rate(value=both, grade="fitted", how=f"pinned copies both ways, {how}")
    broadcast = lines.get("broadcast", {})
    if broadcast.get("backend") == "nccl" and broadcast.get("bytes_per_s"):
        told = f"NCCL broadcast between {broadcast['ranks']} GPUs, {how}; without what a framework does around it"
        path = SyncPath(
            fixed_s=Value(value=broadcast["fixed_s"], grade="fitted", how=told),
            bytes_per_s=Rate(value=broadcast["bytes_per_s"], grade="fitted", how=told),
        )
        changed["paths"] = {"nccl": path}
    return Sync(**changed)

"""The known bias of a source: its predictions against end-to-end points measured by others.

A point is a serving run's time per output token; the prediction is the decode step plus the run's share of prefill
(columns `meas` and `decpre`, ms). So the bias also holds what the source leaves out, such as host time.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rollsim.calibration.rounding import rounded
from rollsim.calibration.step_table import read_rows
from rollsim.simulator.facts import ModelFacts
from rollsim.simulator.profile_parts import Bias

TEXT = ("system", "model", "backend")
NUMBERS = ("tp", "bs", "meas", "decpre")

# Points left out, by metadata: the model they would speak for, and the reason.
EXCLUDED = {
    ("nvidia/Llama-3.1-8B-Instruct-FP8", "h200_sxm", "vllm"): (
        "meta-llama/Llama-3.1-8B-Instruct",
        "their times imply about 94,000 prefill tokens/s on one GPU, near the chip's peak: prefix caching is likely",
    )
}


@dataclass(frozen=True)
class Point:
    """One measured end-to-end point: what ran where, and predicted / measured - 1."""

    model: str
    system: str
    backend: str
    error: float


def read_points(path: Path) -> list[Point]:
    """Points of a table of checks, without the excluded ones."""
    points = [
        Point(str(row["model"]), str(row["system"]), str(row["backend"]), float(row["decpre"]) / float(row["meas"]) - 1)
        for row in read_rows(path, TEXT, NUMBERS)
    ]
    return [point for point in points if (point.model, point.system, point.backend) not in EXCLUDED]


def find_bias(points: list[Point], model: ModelFacts, system: str, backend: str) -> Bias | None:
    """Bias of the nearest points: same model, engine and GPU; else other GPUs; else the model's stand-in; else None."""
    mine = [point for point in points if point.backend == backend]
    same = [point for point in mine if point.model == model.check]
    here = [point for point in same if point.system == system]
    if here:
        return _bias(here, "same model, engine and GPU", _left_out(model))
    if same:
        return _bias(same, "same model and engine", _left_out(model))
    other = [point for point in mine if point.model == model.stand_in]
    other = [point for point in other if point.system == system] or other
    return _bias(other, "stand-in model, same engine", _left_out(model)) if other else None


def _left_out(model: ModelFacts) -> str:
    return "".join(
        f"; points of {name} on {system} with {backend} left out: {reason}"
        for (name, system, backend), (speaks_for, reason) in EXCLUDED.items()
        if speaks_for == model.check
    )


def _bias(points: list[Point], match: str, left_out: str) -> Bias:
    error = np.array([point.error for point in points])
    low, median, high = np.quantile(error, [0.1, 0.5, 0.9])
    where = sorted({f"{point.model} on {point.system} with {point.backend}" for point in points})
    return Bias.model_validate(
        {
            "median": rounded(float(median), 3),
            "p10": rounded(float(low), 3),
            "p90": rounded(float(high), 3),
            "n": len(points),
            "match": match,
            "origin": f"time per output token of {', '.join(where)}; precision and versions not matched{left_out}",
        }
    )

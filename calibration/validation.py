"""A profile against batches that it was not fitted to: the same steps, and how wrong their times are."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rollsim.calibration.measured_steps import MeasuredBatch, measured_batches, noise
from rollsim.calibration.measurement import Measurement
from rollsim.simulator.profile import Profile
from rollsim.traces.errors import BadInput, Fault

FORMAT = "rollsim-validation"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Metric:
    """A number of a batch: predicted, measured in each repeat, and the error of the prediction.

    Attributes
    ----------
    error
        Predicted over the mean of the repeats, less 1.
    spread
        Half of the range of the repeats over their mean; 0 for one.
    """

    name: str
    unit: str
    predicted: float
    measured: tuple[float, ...]
    error: float
    spread: float


def validate(measurement: Measurement, profile: Profile, tolerance: float) -> dict[str, Any]:
    """Predict every held-out batch and compare.

    The steps of each batch must be those that the simulator takes; then time is all that can differ.

    Parameters
    ----------
    measurement : Measurement
    profile : Profile
    tolerance : float
        Largest relative error of a makespan; a machine that repeats itself worse than this makes the outcome void.

    Returns
    -------
    dict
        As JSON; `passed` is None if it is void.

    Raises
    ------
    BadInput
        Nothing was held out, or a recording has steps that the simulator does not take (named with the first).
    """
    batches = measured_batches(measurement, ("held_out", "reference"))
    held_out = [batch for batch in batches if batch.role == "held_out"]
    if not held_out:
        message = "no held-out batch was measured"
        raise BadInput(Fault(str(measurement.path), message=message, allowed="a finished measurement"))
    rows = [_row(batch, profile) for batch in held_out]
    known = noise(batches)
    worst = max(abs(row["metrics"][0]["error"]) for row in rows)
    void = known is None or known[0] > tolerance
    predicted = np.concatenate([_predicted_s(batch, profile) for batch in held_out for _ in batch.seconds])
    measured = np.concatenate([repeat for batch in held_out for repeat in batch.seconds])
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "measurement": str(measurement.path),
        "profile": profile.name,
        "clock": measurement.manifest["clock"],
        "batches": rows,
        "steps": int(sum(batch.seconds.shape[1] for batch in held_out)),
        "r2": 1 - float(((predicted - measured) ** 2).sum() / ((measured - measured.mean()) ** 2).sum()),
        "noise": None if known is None else known[0],
        "noise_repeats": None if known is None else known[1],
        "tolerance": tolerance,
        "worst_makespan_error": worst,
        "passed": None if void else worst <= tolerance,
        "notes": _notes(measurement.manifest, profile),
    }


def _notes(manifest: dict[str, Any], profile: Profile) -> list[str]:
    """Whether the profile is of another model or device than the measurement."""
    pairs = (
        ("model", profile.model.hf_name, manifest["model"]["name"]),
        ("device", profile.gpu.name, manifest["device"]["name"]),
    )
    return [f"the profile is of the {what} {own}, measured was {other}" for what, own, other in pairs if own != other]


def _predicted_s(batch: MeasuredBatch, profile: Profile) -> np.ndarray:
    return batch.features.seconds(profile.step_cost(batch.recording.limits))


def _row(batch: MeasuredBatch, profile: Profile) -> dict[str, Any]:
    results = [result for result in batch.recording.results.values() if result["finish_step"] is not None]
    finished = np.array([r["finish_step"] for r in results if r["finish_reason"] != "abort"])
    first = np.array([r["first_token_step"] for r in results if r["first_token_step"] is not None])
    tokens = sum(result["output_tokens"] for result in results)
    numbers: dict[str, tuple[str, Callable[[np.ndarray], float]]] = {
        "makespan": ("s", lambda ends_s: ends_s[-1]),
        "throughput": ("tokens/s", lambda ends_s: tokens / ends_s[-1]),
        **{
            f"completion P{share}": ("s", lambda ends_s, share=share: np.percentile(ends_s[finished], share))
            for share in (50, 95, 99)
        },
        "first token P50": ("s", lambda ends_s: np.percentile(ends_s[first], 50)),
        "first token P95": ("s", lambda ends_s: np.percentile(ends_s[first], 95)),
    }
    predicted_ends_s = np.cumsum(_predicted_s(batch, profile))
    measured_ends_s = np.cumsum(batch.seconds, axis=1)
    metrics = []
    for name, (unit, number) in numbers.items():
        predicted = float(number(predicted_ends_s))
        measured = np.array([float(number(ends_s)) for ends_s in measured_ends_s])
        mean = float(measured.mean())
        metrics.append(
            Metric(
                name,
                unit,
                predicted,
                tuple(measured.tolist()),
                predicted / mean - 1,
                float(np.ptp(measured)) / 2 / mean,
            )
        )
    return {
        "name": batch.name,
        "purpose": batch.purpose,
        "steps": batch.seconds.shape[1],
        "preemptions": batch.recording.preemptions,
        "repeats": len(batch.seconds),
        "metrics": [asdict(metric) for metric in metrics],
    }

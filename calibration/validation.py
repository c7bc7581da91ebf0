"""A profile against batches that it was not fitted to: the same steps, and how wrong their times are."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

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
        "r2": r_squared(predicted, measured),
        "r2_of": "step times",
        **verdict(rows, noise(batches), tolerance),
        "notes": notes(measurement.manifest, profile),
    }


def notes(manifest: dict[str, Any], profile: Profile) -> list[str]:
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

    def times(steps_s: np.ndarray) -> Times:
        ends_s = np.cumsum(steps_s)
        return Times(float(ends_s[-1]), tokens, ends_s[finished], ends_s[first])

    return {
        "name": batch.name,
        "purpose": batch.purpose,
        "steps": batch.seconds.shape[1],
        "preemptions": batch.recording.preemptions,
        "repeats": len(batch.seconds),
        "metrics": metrics(times(_predicted_s(batch, profile)), [times(repeat) for repeat in batch.seconds]),
    }


class Times(NamedTuple):
    """Times of a batch, since its start [s]: its end, those of its requests, and their first tokens; and its tokens."""

    makespan_s: float
    tokens: int
    ends_s: np.ndarray
    firsts_s: np.ndarray

    def numbers(self) -> dict[str, tuple[str, float]]:
        """What is compared: unit and number by name."""
        return {
            "makespan": ("s", self.makespan_s),
            "throughput": ("tokens/s", self.tokens / self.makespan_s),
            **{f"completion P{p}": ("s", float(np.percentile(self.ends_s, p))) for p in (50, 95, 99)},
            **{f"first token P{p}": ("s", float(np.percentile(self.firsts_s, p))) for p in (50, 95)},
        }


def metrics(predicted: Times, measured: Sequence[Times]) -> list[dict[str, Any]]:
    """Return predicted beside measured, of each repeat, as `Metric` in JSON."""
    found = []
    for name, (unit, value) in predicted.numbers().items():
        repeats = np.array([times.numbers()[name][1] for times in measured])
        mean = float(repeats.mean())
        spread = float(np.ptp(repeats)) / 2 / mean
        found.append(asdict(Metric(name, unit, value, tuple(repeats.tolist()), value / mean - 1, spread)))
    return found


def r_squared(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Share of the variance of what was measured that is predicted."""
    return 1 - float(((predicted - measured) ** 2).sum() / ((measured - measured.mean()) ** 2).sum())


def verdict(rows: list[dict[str, Any]], known: tuple[float, int] | None, tolerance: float) -> dict[str, Any]:
    """Return the part of a validation that judges: noise, worst error, whether it passed; None if it is void."""
    worst = max(abs(row["metrics"][0]["error"]) for row in rows)
    void = known is None or known[0] > tolerance
    return {
        "noise": None if known is None else known[0],
        "noise_repeats": None if known is None else known[1],
        "tolerance": tolerance,
        "worst_makespan_error": worst,
        "passed": None if void else worst <= tolerance,
    }

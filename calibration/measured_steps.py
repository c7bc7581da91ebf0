"""The steps of a measurement with their times: features computed, seconds measured."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollsim.calibration.measurement import Measurement
from rollsim.calibration.step_features import Features, features
from rollsim.simulator.recording import Recording, read_recordings
from rollsim.traces.errors import BadInput, Fault, gathering


@dataclass(frozen=True)
class MeasuredBatch:
    """A recorded batch.

    Attributes
    ----------
    seconds : array [repeats, steps]
        Measured time of each step, by the measurement's clock.
    host_s : array [repeats, steps], optional
        What of it was spent outside the model; None if the engine did not tell it.
    """

    name: str
    purpose: str
    role: str
    recording: Recording
    features: Features
    seconds: np.ndarray
    host_s: np.ndarray | None = None

    @property
    def makespans_s(self) -> np.ndarray:
        """Time of each repeat [s]."""
        return self.seconds.sum(axis=1)


def measured_batches(measurement: Measurement, roles: Collection[str]) -> list[MeasuredBatch]:
    """Read the batches of some roles that were run.

    Raises
    ------
    BadInput
        With every fault: damaged recordings, steps that the simulator does not take.
    """
    faults: list[Fault] = []
    batches = []
    for planned in measurement.manifest["planned"]:
        if planned["role"] not in roles or (document := measurement.recording(planned["name"])) is None:
            continue
        with gathering(faults):
            (recording,) = read_recordings(measurement.path / "recordings" / f"{planned['name']}.json")
            clock, engine = measurement.manifest["clock"], measurement.manifest["engine"]
            counted = features(recording)
            late = recording.is_async and engine["build"] != "cpu"
            seconds, host_s = (
                of_steps(_seconds(document, name), len(counted.tokens), late=late) for name in (clock, f"host_{clock}")
            )
            batches.append(
                MeasuredBatch(
                    planned["name"],
                    planned["purpose"],
                    planned["role"],
                    recording,
                    counted,
                    seconds,
                    None if np.isnan(host_s).any() else host_s,
                )
            )
    if faults:
        raise BadInput(faults)
    return batches


def _seconds(document: dict[str, Any], clock: str) -> np.ndarray:
    return np.array([repeat[f"{clock}_ms"] for repeat in document["repeats"]], dtype=float) / 1e3


def of_steps(calls: np.ndarray, steps: int, *, late: bool) -> np.ndarray:
    """Times of steps from those of calls, [repeats, steps]; calls that only pass on what has ended come last, and go.

    Late: where batches run beside the host, a call waits for the batch of the call before. The first does not wait.
    """
    found = calls[:, :steps].copy()
    if late and steps > 1:
        found[:, :-1] = calls[:, 1:steps]
        found[:, 0] += calls[:, 0]
        found[:, -1] = 0.0
    return found


def host_s(batches: list[MeasuredBatch]) -> float | None:
    """Time that the host takes in every step [s]; None if the engine did not tell it.

    The lower decile over all steps: what grows with the batch (more requests to schedule, more outputs) is left to the
    terms that are fitted. Never more than half of the shortest step.
    """
    if any(batch.host_s is None for batch in batches):
        return None
    known = np.concatenate([batch.host_s.ravel() for batch in batches if batch.host_s is not None])
    shortest = min(float(batch.seconds.min()) for batch in batches)
    return min(float(np.percentile(known, 10)), shortest / 2)


def noise(batches: list[MeasuredBatch]) -> tuple[float, int] | None:
    """Half of the range of the reference batch's times over their mean, and how many repeats there are.

    None with fewer than five repeats, which do not tell it.
    """
    return half_range(np.concatenate([b.makespans_s for b in batches if b.role == "reference"] or [np.empty(0)]))


def half_range(repeats: np.ndarray) -> tuple[float, int] | None:
    """Half of the range of times over their mean, and how many there are; None of fewer than five."""
    return (float(np.ptp(repeats) / 2 / repeats.mean()), len(repeats)) if len(repeats) >= _REPEATS else None


_REPEATS = 5

"""A measurement of either kind, of an engine step by step or of a server request by request: opened, fitted, judged."""

from pathlib import Path
from typing import Any

from rollsim.calibration.measured_profile import fit_profile
from rollsim.calibration.measurement import Measurement
from rollsim.calibration.server_measurement import LEVEL, ServerMeasurement
from rollsim.calibration.server_profile import fit_server_profile
from rollsim.calibration.server_validation import validate_server
from rollsim.calibration.validation import validate
from rollsim.simulator.profile import Profile
from rollsim.traces.errors import BadInput, Fault


def open_measurement(path: Path) -> Measurement:
    """Open a folder that was measured.

    Raises
    ------
    BadInput
        There is no measurement.
    """
    if not (path / "manifest.json").is_file():
        allowed = "a folder that `rollsim calibrate measure` wrote"
        raise BadInput(Fault(str(path), "manifest.json", message="no measurement", allowed=allowed))
    opened = Measurement(path)
    return ServerMeasurement(path) if opened.manifest.get("level") == LEVEL else opened


def fit(measurement: Measurement, name: str | None = None) -> Profile:
    """Fit a profile: `fit_profile` or `fit_server_profile`."""
    if isinstance(measurement, ServerMeasurement):
        return fit_server_profile(measurement, name)
    return fit_profile(measurement, name)


def judge(measurement: Measurement, profile: Profile, tolerance: float) -> dict[str, Any]:
    """Judge a profile by what was held out: `validate` or `validate_server`."""
    if isinstance(measurement, ServerMeasurement):
        return validate_server(measurement, profile, tolerance)
    return validate(measurement, profile, tolerance)

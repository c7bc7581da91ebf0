"""All that a profile needs, measured on one device with torch alone: steps, train steps, transfers, in one folder."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rollsim.calibration import train_fit, transfer_fit
from rollsim.calibration.device_report import training_text, transfers_text
from rollsim.calibration.engine_process import EngineProcess
from rollsim.calibration.local_models import default_model
from rollsim.calibration.measure import measure
from rollsim.calibration.measured import fit, judge, open_measurement
from rollsim.calibration.measurement import read_json, write_json
from rollsim.calibration.train_timing import time_training
from rollsim.calibration.transfer_timing import time_transfers
from rollsim.calibration.validation_report import text as validation_text
from rollsim.simulator.profile import Profile
from rollsim.simulator.profile_parts import Sync, Train

# Of the time: steps, and train steps; transfers take what they take.
_STEPS, _TRAIN = 0.6, 0.25


def measure_device(
    out: Path,
    model: Path | None = None,
    *,
    minutes: float,
    tolerance: float,
    progress: Callable[[float], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure into a folder: ``steps/``, ``train.json``, ``sync.json`` and the ``profile.json`` made of them.

    What is there is not done again.

    Parameters
    ----------
    out
        The folder.
    model
        Folder with a config.json; None: as `default_model`.
    minutes
        For all of it.
    tolerance
        Largest relative error of a held-out makespan.
    progress
        Called with the share that is done.

    Returns
    -------
    dict
        As JSON: ``validation``, ``training``, ``transfers``.

    Raises
    ------
    EngineUnfit, EngineFailed, BadInput
        As its parts.
    """
    out.mkdir(parents=True, exist_ok=True)
    chosen = str(model) if model is not None else default_model(out / "model", "torch")
    measure(
        chosen,
        out / "steps",
        minutes=minutes * _STEPS,
        open_engine=partial(EngineProcess, backend="torch"),
        progress=lambda share, _: progress(_STEPS * share),
    )
    training, transfers = out / "train.json", out / "sync.json"
    if not training.is_file():
        timed = time_training(
            Path(chosen), minutes=minutes * _TRAIN, progress=lambda share: progress(_STEPS + _TRAIN * share)
        )
        write_json(training, train_fit.fit_training(timed))
    if not transfers.is_file():
        write_json(transfers, transfer_fit.fit_transfers(time_transfers()))
    measured = open_measurement(out / "steps")
    profile = fit(measured)
    # Shares of the peak are of the FLOPs that the simulator counts for this very profile.
    kept = train_fit.fit_training(_timed(read_json(training)), profile.model)
    write_json(training, kept)
    for document in (kept, read_json(transfers)):
        profile = with_section(profile, document)
    profile.write(out / "profile.json")
    progress(1.0)
    return {
        "format": "rollsim-device-session",
        "schema_version": 1,
        "folder": str(out),
        "validation": judge(measured, profile, tolerance),
        "training": kept,
        "transfers": read_json(transfers),
    }


def _timed(document: dict[str, Any]) -> dict[str, Any]:
    """What was timed, without what was fitted to it."""
    fitted = ("format", "schema_version", "peak", "train", "optimizer_bytes_per_s", "noise", "errors")
    return {key: value for key, value in document.items() if key not in fitted}


def with_section(profile: Profile, document: dict[str, Any]) -> Profile:
    """Return a profile with what follows from timings of train steps or transfers; what these do not tell stays."""
    if document["format"] == train_fit.FORMAT:
        train = Train.model_validate(document["train"])
        return profile.model_copy(update={"train": profile.train.model_copy(update=_known(train))})
    sync = Sync.model_validate(document["sync"])
    known = _known(sync)
    if "paths" in known:
        known["paths"] = {**(profile.sync.paths or {}), **known["paths"]}
    return profile.model_copy(update={"sync": profile.sync.model_copy(update=known)})


def _known(section: Train | Sync) -> dict[str, Any]:
    return {name: value for name in type(section).model_fields if (value := getattr(section, name)) is not None}


def text(document: dict[str, Any]) -> str:
    """Lay out a session, at most 80 columns."""
    parts = (
        ("STEPS", validation_text(document["validation"])),
        ("TRAIN STEPS", training_text(document["training"])),
        ("TRANSFERS", transfers_text(document["transfers"])),
    )
    return "\n\n".join(f"{title}\n{body}" for title, body in parts)

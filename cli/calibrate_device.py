"""`rollsim calibrate train`, `sync` and `gpu`: what this device costs besides generation. Need the extra torch."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollsim.cli.console import EXIT_DONE, EXIT_OUTSIDE_TOLERANCE, EXIT_WORLD_FAILED, Json, Quiet, emit, note, progress
from rollsim.traces.errors import BadInput, Fault

if TYPE_CHECKING:
    from rollsim.simulator.profile import Profile

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder with a config.json; weights may be missing.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write what was measured, a .json file.")]
Into = Annotated[
    str | None, typer.Option(metavar="P", help="Profile to put the fit into, a .json file; changed in place.")
]


def train(
    model: Model,
    out: Out = None,
    into: Into = None,
    minutes: Annotated[float, typer.Option(min=0.05, metavar="N", help="Time to spend.")] = 2.0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Time train steps of a model on this device, and fit the shares of the peak that they reach.

    Passes with gradients, with activations kept and computed again, passes for log-probabilities, and the optimizer, in
    plain torch on one device.

    \b
    rollsim calibrate train ./Qwen3-1.7B --out train.json
    rollsim calibrate train ./Qwen3-1.7B --into ./here.json
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.calibration.device_report import training_text
    from rollsim.calibration.train_fit import fit_training
    from rollsim.calibration.train_timing import time_training

    profile = _profile(out, into)
    timed = _told(lambda done: time_training(model, minutes=minutes, progress=done), "timing", quiet)
    if profile is not None and profile.model.layers != timed["model"]["layers"]:
        given = f"{timed['model']['layers']} layers"
        raise BadInput(Fault(str(into), given=given, allowed=f"{profile.model.layers}", message="is of another model"))
    document = fit_training(timed, profile.model if profile else None)
    _kept(document, out, into, profile, quiet)
    emit(document, as_json, lambda: [training_text(document)])


def sync(out: Out = None, into: Into = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Time copies between host and device and collectives between devices, and fit a line to each.

    Collectives run over NCCL between all GPUs; without two of them over gloo on the CPU, which proves no more than that
    the code runs.

    \b
    rollsim calibrate sync --out sync.json
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.calibration.device_report import transfers_text
    from rollsim.calibration.transfer_fit import fit_transfers
    from rollsim.calibration.transfer_timing import time_transfers

    profile = _profile(out, into)
    document = fit_transfers(_told(time_transfers, "timing", quiet))
    _kept(document, out, into, profile, quiet)
    emit(document, as_json, lambda: [transfers_text(document)])


def gpu(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for all of it; what is there is not done again.")],
    model: Annotated[
        Path | None,
        typer.Argument(metavar="[MODEL]", help="Folder with a config.json; default: a qwen3 of 4 B on a GPU."),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, metavar="N", help="Time for all of it.")] = 6.0,
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=10.0, metavar="X", help="Largest relative error of a makespan.")
    ] = 0.25,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure all that a profile needs on this device, with nothing but torch and no network.

    Steps of the plain decoder, their fit and its verdict, train steps and transfers, all into one profile.json. Done
    pieces are kept: the same command goes on with the rest. Exit code 3 if the fit is outside the tolerance.

    \b
    rollsim calibrate gpu --out measured/gpu --minutes 6
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.calibration.device_session import measure_device, text

    document = _told(
        lambda done: measure_device(out, model, minutes=minutes, tolerance=tolerance, progress=done), "measuring", quiet
    )
    note(f"wrote {out}", quiet)
    emit(document, as_json, lambda: [text(document)])
    raise typer.Exit(EXIT_DONE if document["validation"]["passed"] else EXIT_OUTSIDE_TOLERANCE)


def _told(run: Callable[[Callable[[float], None]], dict[str, Any]], what: str, quiet: bool) -> dict[str, Any]:
    """Run with progress; what the device cannot do is bad input, what fails on the way ends the command."""
    from rollsim.calibration.engine_faults import EngineFailed, EngineUnfit

    try:
        with progress(what, 1.0, quiet) as done:
            return run(done)
    except EngineUnfit as error:
        raise BadInput(Fault("calibrate", message=str(error))) from None
    except EngineFailed as error:
        note(f"it failed: {error}")
        raise typer.Exit(EXIT_WORLD_FAILED) from None


def _profile(out: Path | None, into: str | None) -> "Profile | None":
    from rollsim.calibration.measured_profile import check_file
    from rollsim.simulator.profile_store import load_profile

    if out is not None:
        check_file(out, None)
    if into is None:
        return None
    if not into.endswith(".json"):
        raise BadInput(
            Fault("--into", given=into, allowed="a file named *.json", message="a shipped profile stays as it is")
        )
    return load_profile(into, "--into")


def _kept(document: dict[str, Any], out: Path | None, into: str | None, profile: "Profile | None", quiet: bool) -> None:
    """Write what was measured, and the profile with the section that follows from it."""
    from rollsim.calibration.device_session import with_section
    from rollsim.calibration.measurement import write_json

    if out is not None:
        write_json(out, document)
        note(f"wrote {out}", quiet)
    if into is not None and profile is not None:
        changed = with_section(profile, document)
        if changed == profile:
            note(f"{into} stays as it was", quiet)
        else:
            changed.write(Path(into))
            note(f"wrote {into}", quiet)

"""rollsim calibrate: measure a real engine on this machine, fit a profile to it, and say how wrong that is."""

from pathlib import Path
from typing import Annotated

import typer

from rollsim.cli import calibrate_device, calibrate_fit, calibrate_measure, calibrate_watch
from rollsim.cli.console import EXIT_DONE, EXIT_OUTSIDE_TOLERANCE, Json, Quiet, emit, note, ready_kernel

app = typer.Typer(no_args_is_help=True, help="Measure a real engine, fit a profile to it, and say how wrong it is.")
app.command("measure")(calibrate_measure.measure)

app.command("fit")(calibrate_fit.fit)
app.command("watch")(calibrate_watch.watch)
app.command("train")(calibrate_device.train)
app.command("sync")(calibrate_device.sync)
app.command("gpu")(calibrate_device.gpu)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="What `rollsim calibrate measure` wrote.")]


@app.command()
def validate(
    folder: Folder,
    profile: Annotated[str, typer.Option(metavar="P", help="Profile to judge: a path, or a shipped name.")],
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=10.0, metavar="X", help="Largest relative error of a makespan.")
    ] = 0.25,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Judge a profile by batches that were held out: the same steps, and how wrong their times are.

    Exit code 3 if a makespan is outside the tolerance, or if the machine repeats itself too badly to tell.

    \b
    rollsim calibrate validate measured/qwen3-1.7b --profile ./here.json
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.calibration.measured import judge, open_measurement
    from rollsim.calibration.validation_report import text
    from rollsim.simulator.profile_store import load_profile

    measurement, loaded = open_measurement(folder), load_profile(profile, "--profile")
    ready_kernel("recordings", quiet)
    document = judge(measurement, loaded, tolerance)
    emit(document, as_json, lambda: [text(document)])
    raise typer.Exit(EXIT_DONE if document["passed"] else EXIT_OUTSIDE_TOLERANCE)


@app.command()
def quick(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the measurement and its profile.json.")],
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="Folder of a model, or its name on a hub; default: Qwen/Qwen3-4B on a GPU, a random qwen3 on a CPU.",
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, metavar="N", help="Time to measure for.")] = 8.0,
    backend: calibrate_measure.Engine = "vllm",
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=10.0, metavar="X", help="Largest relative error of a makespan.")
    ] = 0.25,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure, fit and validate in one go, with vLLM's defaults; on one GPU of 24 GB or more, or on a CPU.

    Prints the verdict; the profile lies in FOLDER/profile.json. Exit codes are those of `validate`.

    \b
    rollsim calibrate quick ./Qwen3-1.7B --out measured/qwen3-1.7b
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.calibration.local_models import default_model
    from rollsim.calibration.measured import fit as fit_of
    from rollsim.calibration.measured import judge, open_measurement
    from rollsim.calibration.validation_report import text

    model = model or default_model(out.with_name(f"{out.name}-model"), backend)
    calibrate_measure.measured(model, out, minutes, 0, {}, backend, quiet=quiet)
    measurement = open_measurement(out)
    ready_kernel("recordings", quiet)
    profile = fit_of(measurement)
    profile.write(out / "profile.json")
    note(f"wrote {out / 'profile.json'}", quiet)
    document = judge(measurement, profile, tolerance)
    emit(document, as_json, lambda: [text(document)])
    raise typer.Exit(EXIT_DONE if document["passed"] else EXIT_OUTSIDE_TOLERANCE)

"""`rollsim calibrate fit`: a profile from measured steps of an engine, or from the log of a training run."""

from pathlib import Path
from typing import Annotated

import typer

from rollsim.cli.console import Json, Quiet, emit, note, progress, ready_kernel
from rollsim.traces.errors import BadInput, Fault


def fit(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FOLDER | [A.B=VALUE]...",
            help="What `rollsim calibrate measure` wrote; with --from-log settings over those of --config.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Profile to write, a .json file.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Of the profile; default: model and device.")] = None,
    from_log: Annotated[
        Path | None, typer.Option(metavar="LOG", help="Log of a training run, as `rollsim import` reads it.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="CONFIG", help="With --from-log: what was run, YAML or example:NAME.")
    ] = None,
    steps: Annotated[
        int, typer.Option(min=8, metavar="N", help="With --from-log: fit to the first N steps; others are held out.")
    ] = 50,
    source: Annotated[
        str, typer.Option(metavar="S", help="With --from-log: whose log it is (verl, nemo-rl, ...).")
    ] = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a profile to a measurement: the cost of a step by what is in it.

    Robust, non-negative and monotone; held-out batches only say how wrong it is. Refuses steps that cannot tell a term,
    and says what to measure for it. With --from-log: factors on the costs that a config would have, from the first
    train steps of a log, whose later steps say how wrong they are.

    \b
    rollsim calibrate fit measured/qwen3-1.7b --out here.json
    rollsim replay example:grpo --profile ./here.json
    rollsim calibrate fit --from-log verl.jsonl --config my.yaml --out mine.json
    rollsim run my.yaml model.profile=./mine.json
    """  # noqa: D301 - \b keeps click from wrapping the examples
    given = words or []
    _check(given, out, from_log, config)
    assert out is not None
    if from_log is None:
        _measurement(Path(given[0]), out, name, as_json=as_json, quiet=quiet)
    else:
        _log(from_log, source, (str(config), given), steps, out, name, as_json=as_json, quiet=quiet)


def _check(words: list[str], out: Path | None, from_log: Path | None, config: str | None) -> None:
    """Refuse what does not go together, all of it at once."""
    faults = []
    if out is None:
        faults.append(Fault("--out", allowed="a file named *.json", message="where should the profile go?"))
    if from_log is None:
        if len(words) != 1:
            message = "one measurement is needed" if not words else "one measurement at a time"
            faults.append(
                Fault("FOLDER", given=" ".join(words) or None, allowed="a folder, or --from-log", message=message)
            )
        if config is not None:
            faults.append(Fault("--config", given=config, message="belongs to --from-log"))
    elif config is None:
        allowed = "a YAML file, or example:NAME"
        faults.append(Fault("--config", allowed=allowed, message="a log does not tell what was run"))
    if faults:
        raise BadInput(faults)


def _measurement(folder: Path, out: Path, name: str | None, *, as_json: bool, quiet: bool) -> None:
    from rollsim.calibration.measured import fit as fit_of
    from rollsim.calibration.measured import open_measurement
    from rollsim.calibration.measured_profile import check_file
    from rollsim.simulator.profile_report import show_text

    measurement = open_measurement(folder)
    check_file(out, name)
    ready_kernel("recordings", quiet)
    profile = fit_of(measurement, name)
    profile.write(out)
    note(f"wrote {out}", quiet)
    emit(profile.model_dump(mode="json"), as_json, lambda: [show_text(profile)])


def _log(
    log: Path,
    source: str,
    config: tuple[str, list[str]],
    steps: int,
    out: Path,
    name: str | None,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    from rollsim.calibration.log_fit import fit_log
    from rollsim.calibration.log_profile import log_profile
    from rollsim.calibration.log_report import document, text
    from rollsim.calibration.logged_steps import logged_steps
    from rollsim.calibration.measured_profile import check_file
    from rollsim.simulator.simulate import load
    from rollsim.traces.importers.log import read_log

    check_file(out, name)
    loaded = load(*config)
    imported = read_log(log, source)
    if imported.steps is None:
        raise BadInput(Fault(str(log), message="tells of no train steps", allowed="a log of step metrics"))
    logged = logged_steps(imported.steps, str(log))
    for fault in imported.faults:
        note(str(fault), quiet)
    ready_kernel("run", quiet)
    with progress("fitting", 1.0, quiet) as shown:
        fitted = fit_log(logged, loaded, config[0], steps, shown)
    profile = log_profile(fitted, loaded, name)
    profile.write(out)
    note(f"wrote {out}", quiet)
    said = document(fitted, loaded.model.profile, profile.name)
    emit(said, as_json, lambda: [text(said)])

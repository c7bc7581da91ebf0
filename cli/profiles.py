"""rollsim profiles: the calibrated engines that ship with the package, and building more."""

from pathlib import Path
from typing import Annotated

import typer

from rollsim.cli import console

app = typer.Typer(no_args_is_help=True, help="List, show and build profiles: the fitted cost models of engines.")


@app.command("list")
def list_(
    containing: Annotated[str, typer.Argument(metavar="[TEXT]", help="Only names that contain this.")] = "",
    as_json: console.Json = False,
) -> None:
    """List the profiles that ship with the package."""
    from rollsim.simulator.profile_report import list_text, summary
    from rollsim.simulator.profile_store import list_profiles, load_profile

    summaries = [summary(load_profile(name)) for name in list_profiles(containing)]
    console.emit({"profiles": summaries}, as_json, lambda: [list_text(summaries)])


@app.command()
def show(
    profile: Annotated[str, typer.Argument(metavar="NAME", help="Name of a profile, or path of a .json file.")],
    as_json: console.Json = False,
) -> None:
    """Show all of one profile: tables, fit errors, known bias, and what rests on what."""
    from rollsim.simulator.profile_report import show_text
    from rollsim.simulator.profile_store import load_profile

    loaded = load_profile(profile, "NAME")
    console.emit(loaded.model_dump(mode="json"), as_json, lambda: [show_text(loaded)])


@app.command()
def build(
    from_table: Annotated[Path, typer.Option(help="Measured step times, CSV or CSV.gz.")],
    out: Annotated[Path, typer.Option(help="Folder to write NAME.json files into.")],
    bias_table: Annotated[
        Path | None, typer.Option(help="Predictions against measured end-to-end points, CSV. Without it, no bias.")
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Build profiles from a table of measured step times, one for each known model and GPU in it."""
    from rollsim.calibration.build_profiles import build_profiles, write_profiles

    paths = [str(path) for path in write_profiles(build_profiles(from_table, bias_table), out)]
    console.emit({"profiles": paths}, as_json, lambda: [*paths, f"{len(paths)} profiles"])

"""`rollsim fit`: a workload from what was measured."""

from pathlib import Path
from typing import Annotated

import typer

from rollsim.cli.console import Json, Quiet, emit, note, progress

app = typer.Typer(help="Fit a workload to what was measured.", no_args_is_help=True)


@app.callback()
def fit() -> None:
    """Fit a workload to what was measured."""


@app.command("lengths")
def lengths(
    table: Annotated[
        str,
        typer.Argument(metavar="TABLE", help="Responses: Parquet, CSV, JSON lines, a run's folder, or example:NAME."),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Length law to write, a .json file.")],
    cap: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="Where responses were cut, if the table does not say it [tokens]."),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Of the law; default: that of the file.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a length law: how long responses are, and how often right.

    Families are compared on prompts that they were not fitted to, lengths that were cut count as such, and the law is
    judged by the other half of the prompts: tail, cap, and the longest of a group.

    \b
    rollsim fit lengths example:arithmetic --out mine.json
    rollsim run example:sync workload.trace=null workload.law=./mine.json
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.calibration.length_extras import extras
    from rollsim.calibration.length_fit import fit_lengths, law_name, responses
    from rollsim.calibration.length_fit_report import text
    from rollsim.calibration.measured_profile import check_file
    from rollsim.traces.requests import read_requests

    check_file(out, name)
    seen = responses(read_requests(table), cap)
    with progress("fitting", 1.0, quiet) as shown:
        law, document = fit_lengths(seen, name or law_name(out.stem), table, shown)
    law.write(out)
    note(f"wrote {out}", quiet)
    document["extras"] = extras(table)
    emit(document, as_json, lambda: [text(document)])

"""`rollsim show`: a run folder as text, as its command printed it."""

from pathlib import Path
from typing import Annotated

import typer

from rollsim.cli.console import Json, emit


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `run --out` or `replay --out` wrote.")],
    as_json: Json = False,
) -> None:
    """Show a run again, computed from its tables.

    Step time and its parts, tokens per GPU, wall-clock and cost, bubble by cause, staleness, the slowest 1 %, and what
    is fitted, assumed and extrapolated; for a replay, what a replay prints. What a run has no tables for is left out.
    """
    from rollsim.simulator.run_report import shown
    from rollsim.traces.run import Run

    document, text = shown(Run.open(run))
    emit(document, as_json, lambda: [text()])

"""`rollsim show`: a run folder as text, as its command printed it."""

from pathlib import Path
from typing import Annotated

import typer

from rollsim.cli.console import Json, emit


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or a folder of replications.")],
    as_json: Json = False,
) -> None:
    """Show a run, or replications of one, again, computed from their tables.

    Step time and its parts, tokens per GPU, wall-clock and cost, bubble by cause, staleness, the slowest 1 %, and what
    is fitted, assumed and extrapolated; for a replay, what a replay prints. What a run has no tables for is left out.
    """
    from rollsim.simulator.shown import shown

    document, text = shown(run)
    emit(document, as_json, lambda: [text()])

"""`rollsim compare`: two runs, paired."""

from pathlib import Path
from typing import Annotated

import typer

from rollsim.cli.console import Json, emit


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Run folder, or a folder of replications.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The same, to be compared with A.")],
    as_json: Json = False,
) -> None:
    """Compare two runs: differences with intervals, and the ledger lines that explain them.

    Replications are paired by seed, which makes them see the same random draws; two single runs are paired step by
    step. Intervals are t intervals of paired differences at 95 %.
    """
    from rollsim.simulator.comparison_report import compare_folders, text

    document = compare_folders(a, b)
    emit(document, as_json, lambda: [text(document)])

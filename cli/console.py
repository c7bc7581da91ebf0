"""Output of every command: results on stdout as tables or JSON, everything else on stderr, and the exit codes."""

import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rollsim.traces.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

EXIT_DONE = 0
EXIT_WORLD_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_OUTSIDE_TOLERANCE = 3
EXIT_INTERRUPTED = 130
WIDTH = 80

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on stderr.")]


def emit(document: object, as_json: bool, shown: Callable[[], Iterable["RenderableType"]]) -> None:
    """Print a result on stdout.

    Parameters
    ----------
    document
        The whole result, for JSON. NaN and infinities are not JSON and must be None.
    as_json
        Print the document instead of what `shown` yields.
    shown
        Makes the tables and texts for people; called only if they are wanted.
    """
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False, default=_plain))
        return
    console = _console()
    for part in shown():
        console.print(part)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> "Table":
    """Return a table for `emit`; a column whose name starts with ``>`` is aligned to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        name = column.removeprefix(">")
        made.add_column(name, justify="right" if column.startswith(">") else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    return made


def note(text: str, quiet: bool = False) -> None:
    """Print a line on stderr unless it should be quiet."""
    if not quiet:
        typer.echo(text, err=True)


def ready_kernel(work: str, quiet: bool = False) -> None:
    """Compile what a kind of work needs of the kernel, or load it, before its clock runs; say so if it takes long."""
    from rollsim.simulator.kernel import compile_notice

    if text := compile_notice(work):
        note(text, quiet)
    from rollsim.simulator.warm_up import warm_up

    warm_up(work)


@contextmanager
def progress(what: str, total: float, quiet: bool = False) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on stderr; gives a function that takes how much is done. Off when quiet or not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def bad_input(error: BadInput, as_json: bool) -> None:
    """Print every fault on stderr."""
    if as_json:
        faults = [asdict(fault) | {"given": _finite(fault.given), "text": str(fault)} for fault in error.faults]
        document = {"error": "bad input", "faults": faults}
        typer.echo(json.dumps(document, indent=2, allow_nan=False, default=_plain), err=True)
        return
    count = len(error.faults)
    typer.echo(f"bad input, {count} fault{'s' if count > 1 else ''}:", err=True)
    for fault in error.faults:
        typer.echo(f"  {fault}", err=True)


def machine_failed(error: OSError | MemoryError) -> None:
    """Say in a line on stderr what the machine refused; nothing if the reader of stdout has gone."""
    if isinstance(error, MemoryError):
        text = "not enough memory"
    else:
        place = f" ({error.filename})" if error.filename else ""
        text = f"{error.strerror or error}{place}"
    with suppress(OSError):
        if not isinstance(error, BrokenPipeError):
            note(f"stopped: {text}")
    # Else Python tries once more to write what is left when it ends, and complains.
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _console() -> "Console":
    from rich.console import Console

    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) if sys.stdout and sys.stdout.isatty() else WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)


def _finite(value: object) -> object:
    """Return NaN and infinities, which are not JSON, as text."""
    if isinstance(value, tuple | list):
        return [_finite(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: object) -> object:
    """Return a numpy scalar as a Python number, anything else as text."""
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)

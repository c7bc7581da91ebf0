"""Assembles the commands. Imports nothing heavy: every command imports what it needs inside its function."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rollsim.cli import (
    calibrate,
    compare,
    console,
    doctor,
    export_run,
    fit,
    import_log,
    laws,
    profiles,
    replay,
    run,
    show,
    split,
)
from rollsim.traces.errors import BadInput, Fault

# What Typer raises for a wrong command line; it has no public name of its own.
_USAGE_ERROR: Any = typer.BadParameter.__base__

app = typer.Typer(
    name="rollsim",
    help="Simulate LLM reinforcement-learning post-training clusters.",
    epilog="Exit codes: 0 done, 1 the world failed (or the machine: disk, memory), 2 bad input, 3 validation outside "
    "tolerance, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": console.WIDTH},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"rollsim {version('rollsim')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command("run")(run.run)
app.command("replay")(replay.replay)
app.command("split")(split.split)
app.command("import")(import_log.import_log)
app.command("export")(export_run.export_run)
app.command("show")(show.show)
app.command("compare")(compare.compare)
app.add_typer(calibrate.app, name="calibrate")
app.add_typer(profiles.app, name="profiles")
app.add_typer(fit.app, name="fit")
app.add_typer(laws.app, name="laws")
app.command("doctor")(doctor.doctor)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; the one place where bad input becomes exit code 2.

    Parameters
    ----------
    arguments
        The words after the program's name; None takes those of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = console.EXIT_INTERRUPTED
    except (OSError, MemoryError) as error:
        console.machine_failed(error)
        code = console.EXIT_WORLD_FAILED
    if code == console.EXIT_INTERRUPTED:
        console.note("interrupted")
    sys.exit(code)


def _run(words: list[str]) -> int:
    """Run the command; Typer itself turns an interrupt into the exit code of one."""
    as_json = "--json" in words
    try:
        return app(args=words, prog_name="rollsim", standalone_mode=False) or console.EXIT_DONE
    except BadInput as error:
        console.bad_input(error, as_json)
    except _USAGE_ERROR as error:
        if as_json:
            console.bad_input(BadInput(Fault("command line", message=error.format_message())), as_json)
        else:
            error.show()
    return console.EXIT_BAD_INPUT

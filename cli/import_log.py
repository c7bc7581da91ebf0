"""`rollsim import`: the log of a framework as the tables of a run."""

from typing import Annotated

import typer

from rollsim.cli.console import EXIT_BAD_INPUT, EXIT_DONE, Json, Quiet, emit, note, progress


def import_log(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[SOURCE] PATH", help="verl, areal, slime, ... or auto; a log file or a run's folder."),
    ],
    out: Annotated[str | None, typer.Option(metavar="RUN", help="Folder to write the tables into.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(metavar="FILE", help="tokenizer.json, to count the tokens of logs that hold text.")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(metavar="OURS=THEIRS", help="A column of a table, as prompt_tokens=n_in.")
    ] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Open pickles (slime), restricted to plain values.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 2 if anything in the log is damaged.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read the log of a training framework, a benchmark or a trace.

    Says what was found, what follows from it, what was damaged, and what is missing with the setting that would log
    it. The run folder it writes can be shown, compared, and replayed. Text of prompts and responses is never kept.

    \b
    rollsim import verl logs/ --out imported
    rollsim import trace.csv --columns reward=score --out imported
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.simulator import log_import

    request = log_import.prepare(words, columns or [], tokenizer, out, allow_pickle=allow_pickle)
    if allow_pickle:
        note("pickles are opened restricted: plain values alone, nothing in them is called", quiet)
    with progress("importing", request.size, quiet) as shown:
        outcome = log_import.execute(request, shown)
    if out is not None:
        note(f"wrote {out}", quiet)
    emit(outcome.document, as_json, lambda: [outcome.text()])
    raise typer.Exit(EXIT_BAD_INPUT if strict and outcome.document["log"]["fault_count"] else EXIT_DONE)

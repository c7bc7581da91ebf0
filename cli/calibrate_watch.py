"""`rollsim calibrate watch`: a running server beside a profile, until it has drifted from it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollsim.cli.console import EXIT_DONE, EXIT_OUTSIDE_TOLERANCE, EXIT_WORLD_FAILED, Json, Quiet, emit, note

if TYPE_CHECKING:
    from rollsim.calibration.drift import Window

_HEAD = (
    f"{'time':>7}{'batch':>9}{'expected':>9}{'KV use':>9}{'expected':>9}{'tokens/s':>11}{'expected':>10}{'time x':>8}"
)


def watch(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of a running vLLM server, as http://127.0.0.1:8000.")],
    profile: Annotated[str, typer.Option(metavar="P", help="What it should be like: a path, or a shipped name.")],
    minutes: Annotated[float, typer.Option(min=0.01, metavar="N", help="How long to watch.")] = 5.0,
    every: Annotated[float, typer.Option(min=0.05, metavar="S", help="Length of a window [s].")] = 5.0,
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=10.0, metavar="X", help="By how much real times may differ from predicted.")
    ] = 0.25,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Watch a server by its /metrics: batch, KV use and tokens per second beside those that a profile predicts.

    The profile has drifted if the median of the last five windows takes longer or shorter than predicted by more than
    the tolerance: exit code 3. Windows in which the server is idle are passed over.

    \b
    rollsim calibrate watch http://127.0.0.1:8000 --profile ./here.json
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.calibration.engine_faults import EngineFailed
    from rollsim.calibration.watch import watch as run
    from rollsim.simulator.profile_store import load_profile

    loaded = load_profile(profile, "--profile")
    shown = not as_json and not quiet

    def seen(window: "Window | None", at_s: float) -> None:
        if shown:
            typer.echo(_row(window, at_s))

    if shown:
        typer.echo(_HEAD)
    try:
        document = run(url, loaded, minutes=minutes, every_s=every, tolerance=tolerance, seen=seen)
    except EngineFailed as error:
        note(f"the server failed: {error}")
        raise typer.Exit(EXIT_WORLD_FAILED) from None
    emit(document, as_json, lambda: _verdict(document))
    if document["ended"] is not None:
        note(f"the server failed: {document['ended']}")
        raise typer.Exit(EXIT_WORLD_FAILED)
    raise typer.Exit(EXIT_OUTSIDE_TOLERANCE if document["drifted"] else EXIT_DONE)


def _row(window: "Window | None", at_s: float) -> str:
    if window is None:
        return f"{at_s:>6.0f}s   idle"
    batch = "-" if window.predicted_batch is None else f"{window.predicted_batch:.1f}"
    share = "-" if window.predicted_kv_share is None else f"{window.predicted_kv_share:.1%}"
    return (
        f"{at_s:>6.0f}s{window.batch:>9.1f}{batch:>9}{window.kv_share:>9.1%}{share:>9}"
        f"{window.tokens_per_s:>11,.0f}{window.predicted_tokens_per_s:>10,.0f}{window.ratio:>8.2f}"
    )


def _verdict(document: dict[str, Any]) -> Iterator[str]:
    windows, tolerance = len(document["windows"]), document["tolerance"]
    yield ""
    if document["ratio"] is None:
        yield f"not judged: {windows} busy windows, {document['deciding']} are needed"
        return
    said = f"real times are {document['ratio']:.2f} x those of {document['profile']}"
    verdict = "DRIFTED: measure again" if document["drifted"] else "no drift"
    yield f"{said} (median of the last {document['deciding']} windows)"
    yield f"tolerance {tolerance:.0%}: {verdict}"

"""`rollsim split`: how to share the GPUs between rollout and training."""

from typing import Annotated

import typer

from rollsim.cli.console import EXIT_BAD_INPUT, EXIT_DONE, Json, Quiet, emit, progress, ready_kernel, table


def split(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="YAML file, or example:NAME (sync, async, ...).")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[A.B=VALUE]...", help="Settings over the config's, as train.steps=4.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Every split sees the same draws.")] = 0,
    replications: Annotated[int, typer.Option(min=1, metavar="N", help="Runs of each split.")] = 1,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run every rollout : train split of the cluster's GPUs and say which is fastest.

    Step time with its 95 % interval, idle shares of both sides under verl's names, staleness, cost of a step. The
    config's own allocation does not count; what cannot run is listed with the reason.

    \b
    rollsim split example:one-step-off
    rollsim split example:async cluster.gpus=32 --replications 3
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.simulator import simulate
    from rollsim.simulator.split import refused, run_splits, shown_rows, splits

    loaded = simulate.load(config, overrides or (), shares=False)
    ready_kernel("run", quiet)
    with progress("splits", len(splits(loaded)), quiet) as shown:
        document = run_splits(loaded, config, seed, replications, shown)
    cost = "GPU-h/step" if document["usd_per_gpu_hour"] is None else "USD/step"
    columns = (
        "split", ">step s", "95 %", ">rollouter idle", ">trainer idle", ">stale", f">{cost}",
    )  # fmt: skip
    emit(document, as_json, lambda: [table(columns, shown_rows(document)), "", *_comments(document, refused(document))])
    raise typer.Exit(EXIT_DONE if document["best"] is not None else EXIT_BAD_INPUT)


def _comments(document: dict, cannot: list[str]) -> list[str]:
    lines = []
    if document["best"] is not None:
        tied = f"; not told apart from it: {', '.join(document['tied'])}" if document["tied"] else ""
        lines.append(f"* fastest: {document['best']}{tied}. Predicted, from the steps after the first.")
    lines.append("idle: as verl's fully_async/rollouter/idle_ratio and trainer/idle_ratio; stale: mean/max versions")
    return lines + [f"cannot run: {line}" for line in cannot]

"""`rollsim split`: how to share the GPUs between rollout and training."""

from typing import Annotated

import typer

from rollsim.cli.console import EXIT_WORLD_FAILED, Json, Quiet, emit, note, progress, ready_kernel, table


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

    Step time with its 95 % interval, idle shares of both sides under verl's names (of the whole run), staleness, cost
    of a step. The config's own allocation does not count, all else is as it says; what cannot run is listed with the
    reason.

    \b
    rollsim split example:one-step-off
    rollsim split example:async cluster.gpus=32 --replications 3
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.simulator import simulate, split_report
    from rollsim.simulator.split import run_splits, splits
    from rollsim.simulator.world_failed import WorldFailed

    loaded = simulate.load(config, overrides or (), shares=False)
    ready_kernel("run", quiet)
    with progress("splits", len(splits(loaded)), quiet) as shown:
        try:
            document = run_splits(loaded, config, seed, replications, shown)
        except WorldFailed as error:
            note(str(error))
            raise typer.Exit(EXIT_WORLD_FAILED) from None
    comments = split_report.comments(document)
    emit(document, as_json, lambda: [table(split_report.columns(document), split_report.rows(document)), "", *comments])

"""`rollsim export`: a run in a format of somebody else."""

from pathlib import Path
from typing import Annotated

import typer

from rollsim.cli.console import Json, emit


def export_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, simulated or imported.")],
    kind: Annotated[str, typer.Option("--format", metavar="NAME", help="verl, ..., trl; table; perfetto; chrome.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="New file to write.")],
    as_json: Json = False,
) -> None:
    """Write the step metrics of a run under a framework's names, its trajectories, or a timeline.

    verl, areal, slime, openrlhf, nemo-rl, prime-rl, skyrl and trl get the metrics that each has a name for, in a file
    that it or its tracker writes; table is one JSON line a trajectory; perfetto and chrome are timelines for
    ui.perfetto.dev, the first as Perfetto's own packets, the second as JSON that chrome://tracing opens too.

    \b
    rollsim export runs/sync --format verl --out sync.jsonl
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.traces.exporters.export import export
    from rollsim.traces.run import Run

    document = export(Run.open(run), kind, out)
    emit(document, as_json, lambda: [f"wrote {out} with {', '.join(document['written'])}"])

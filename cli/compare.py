"""`rollsim compare`: two runs, paired, or the log of a run beside its simulation."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from rollsim.cli.console import Json, Quiet, emit, ready_kernel


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Run folder, or a folder of replications.")],
    b: Annotated[
        str,
        typer.Argument(metavar="B", help="The same; or the config of an imported run A, YAML or example:NAME."),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[A.B=VALUE]...", help="Settings over those of a config.", show_default=False),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare two runs: differences with intervals, and the ledger lines that explain them.

    Replications are paired by seed, which makes them see the same random draws; two single runs are paired step by
    step. Intervals are t intervals of paired differences at 95 %. Where B is a config, the train steps of A, an
    imported log, are simulated as it says with A's lengths, and laid beside it phase by phase.

    \b
    rollsim compare runs/sync runs/async
    rollsim compare imported my.yaml rollout.tensor_parallel=2
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.traces.errors import BadInput, Fault

    if _is_config(b):
        document, text = _beside(a, b, words or [], quiet)
    else:
        from rollsim.simulator.comparison_report import compare_folders, text

        if words:
            raise BadInput(Fault("A.B=VALUE", given=" ".join(words), message="settings belong to a config, B is a run"))
        document = compare_folders(a, b)
    emit(document, as_json, lambda: [text(document)])


def _is_config(b: str) -> bool:
    return b.startswith("example:") or Path(b).suffix in (".yaml", ".yml")


def _beside(a: Path, b: str, words: list[str], quiet: bool) -> tuple[dict[str, Any], Callable[[dict], str]]:
    from rollsim.calibration.log_beside import beside, text
    from rollsim.calibration.logged_steps import logged_steps
    from rollsim.simulator.simulate import load
    from rollsim.traces.errors import BadInput, Fault
    from rollsim.traces.run import Run

    run = Run.open(a)
    if "steps" not in run.tables:
        raise BadInput(Fault(str(a), message="has no train steps", allowed="an imported log of step metrics"))
    logged = logged_steps(run.table("steps"), str(a))
    config = load(b, words)
    ready_kernel("run", quiet)
    return beside(logged, config, b), text

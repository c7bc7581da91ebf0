"""The splits of a cluster as text, 80 columns wide."""

from collections.abc import Iterator
from typing import Any

from rollsim.simulator.split import ROLLOUTER_IDLE, TRAINER_IDLE
from rollsim.simulator.wording import wrap


def columns(document: dict[str, Any]) -> tuple[str, ...]:
    """Heads of the table; those that start with ``>`` stand to the right."""
    cost = "GPU-h/step" if document["usd_per_gpu_hour"] is None else "USD/step"
    return ("split", ">step s", "95 %", ">rollouter idle", ">trainer idle", ">stale", f">{cost}")


def rows(document: dict[str, Any]) -> Iterator[list[str]]:
    """Cells of the table: split, step time, idle of both sides, staleness, cost of a step."""
    cost = "gpu_hours_per_step" if document["usd_per_gpu_hour"] is None else "usd_per_step"
    for row in document["rows"]:
        if row["reason"] is not None:
            continue
        step = row["step_s"]
        yield [
            row["split"] + (" *" if row["split"] == document["best"] else ""),
            f"{step['mean']:,.1f}",
            "" if step["high"] is None else f"± {step['high'] - step['mean']:,.1f}",
            _percent(row[ROLLOUTER_IDLE]),
            _percent(row[TRAINER_IDLE]),
            f"{row['staleness_mean']['mean']:.2f}/{row['staleness_max']}",
            f"{row[cost]['mean']:,.2f}",
        ]


def _percent(number: dict[str, Any]) -> str:
    half = "" if number["high"] is None else f"±{100 * (number['high'] - number['mean']):.1f}"
    return f"{100 * number['mean']:.1f}{half}%"


def comments(document: dict[str, Any]) -> list[str]:
    """Lines below the table: the best split and its rivals, what the columns are, and why the others cannot run."""
    tied = f"; not told apart from it: {', '.join(document['tied'])}" if document["tied"] else ""
    over = "steps after the first" if document["steps"] > 1 else "first step alone, which finds an empty pool"
    lines = [
        f"* fastest: {document['best']}{tied}. Predicted, from the {over}.",
        "idle: as verl's fully_async/rollouter/idle_ratio and trainer/idle_ratio, of the whole run",
        "stale: versions, mean/max",
        *(f"cannot run: {line}" for line in _refused(document)),
    ]
    if len(document["seeds"]) == 2:
        lines.insert(1, "Intervals of two replications are wide; more of them tell more splits apart.")
    return [cut for line in lines for cut in wrap(line, indent=2)]


def _refused(document: dict[str, Any]) -> list[str]:
    """Splits that cannot run, those with one reason together."""
    by_reason: dict[str, list[str]] = {}
    for row in document["rows"]:
        if row["reason"] is not None:
            by_reason.setdefault(row["reason"], []).append(row["split"])
    return [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]

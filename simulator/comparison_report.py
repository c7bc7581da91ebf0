"""Two runs compared, from folders to a JSON document, and that as text of at most 80 columns."""

import os
from typing import Any

from rollsim.simulator.run_document import NEEDED
from rollsim.simulator.run_report import grade, policy_words
from rollsim.simulator.wording import named_row, number, percent, plural, wrap
from rollsim.traces.comparison import compare
from rollsim.traces.errors import BadInput
from rollsim.traces.measured import Measured, measure
from rollsim.traces.replications import config_differences, open_replications
from rollsim.traces.run import Run

FORMAT = "rollsim-comparison"
SCHEMA_VERSION = 1
_LINES = 12
_SETTINGS = 12
_ROUNDING = 1e-9


def compare_folders(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> dict[str, Any]:
    """Open two run folders, or two folders of replications, and compare them.

    Raises
    ------
    BadInput
        With every fault of either, or if they cannot be paired.
    """
    faults, sides = [], []
    for path in (a, b):
        try:
            sides.append(open_replications(path))
        except BadInput as error:
            faults += error.faults
    if faults:
        raise BadInput(faults)
    found = compare(*([_measured(run) for run in runs] for runs in sides))
    changed = config_differences(*(_worded(runs[0].config) for runs in sides))
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "a": {"path": str(a), "replications": len(sides[0]), "numbers": grade(sides[0][0].summary)},
        "b": {"path": str(b), "replications": len(sides[1]), "numbers": grade(sides[1][0].summary)},
        "settings": {place: {"a": values[0], "b": values[1]} for place, values in changed.items()},
        **found.document(),
    }


def _worded(config: dict[str, Any]) -> dict[str, Any]:
    """A config with its policies in words: those with settings and those without compare."""
    policies = config.get("policies")
    if not isinstance(policies, dict):
        return config
    return config | {"policies": {point: policy_words(given) for point, given in policies.items()}}


def _measured(run: Run) -> Measured:
    tables = {name: run.table(name) for name in ("steps", "ledger") if name in run.tables}
    tables["rollouts"] = run.table("rollouts", list(NEEDED))
    seed = run.manifest.get("seed")
    return measure(tables, seed if isinstance(seed, int) else None)


def text(document: dict[str, Any]) -> str:
    """Lay out the document."""
    sections = (_head, _differences, _explained, _notes)
    return "\n".join(line.rstrip() for section in sections for line in section(document))


def _head(document: dict[str, Any]) -> list[str]:
    how = {
        "seed": "replications paired by seed",
        "step": "steps paired by their number",
        "none": "one run each, without steps: no intervals",
    }[document["pairing"]]
    lines = [f"{side.upper()}  {document[side]['path']}" for side in ("a", "b")]
    lines.append(f"{plural(document['pairs'], 'pair')}: {how}")
    settings = list(document["settings"].items())
    for place, values in settings[:_SETTINGS]:
        lines += wrap(f"  {place}: {values['a']} -> {values['b']}", indent=4)
    if len(settings) > _SETTINGS:
        lines.append(f"  and {plural(len(settings) - _SETTINGS, 'more setting')}")
    return lines


def _differences(document: dict[str, Any]) -> list[str]:
    grades = sorted({document[side]["numbers"] for side in ("a", "b")})
    lines = ["", f"{'B AGAINST A, ' + ' and '.join(grades):<27}{'A':>8}{'B':>8}{'B - A':>9}{'':>8} 95 % interval"]
    for row in document["differences"]:
        if row["a"] is None and row["b"] is None:
            continue
        gap = row["difference"]
        name = f"{row['label']}, {row['unit']}" if row["unit"] else row["label"]
        change = gap["mean"] / row["a"] if row["a"] and gap["mean"] is not None else None
        cells = f"{number(row['a']):>8}{number(row['b']):>8}{_signed(gap['mean']):>9}{percent(change):>8}"
        ends = "none" if gap["low"] is None else f"{_signed(gap['low'])} to {_signed(gap['high'])}"
        lines.append(f"{name:<27}{cells} {ends}")
    return lines


def _explained(document: dict[str, Any]) -> list[str]:
    least_s = _ROUNDING * max((abs(row["a_s"]) + abs(row["b_s"]) for row in document["explained"]), default=0.0)
    rows = [row for row in document["explained"] if abs(row["difference_s"]) > least_s]
    if not rows:
        return []
    of = "step time" if any(row["name"] == "step_s" for row in document["differences"]) else "span"
    unit = "s per step and GPU" if of == "step time" else "s per GPU"
    lines = ["", f"{f'WHAT EXPLAINS THE {of.upper()}, {unit}':<48}{'A':>9}{'B':>9}{'B - A':>10}"]
    for row in rows[:_LINES]:
        cause = f": {row['cause']}" if row["cause"] else ""
        name = f"{row['pool']}: {row['category'].replace('_', ' ')}{cause}"
        cells = f"{number(row['a_s']):>9}{number(row['b_s']):>9}{_signed(row['difference_s']):>10}"
        lines += named_row(name, 48, cells)
    if rest := rows[_LINES:]:
        rest_s = sum(row["difference_s"] for row in rest)
        lines.append(f"{plural(len(rest), 'smaller line'):<48}{'':>18}{_signed(rest_s):>10}")
    return [*lines, f"{f'all: the difference in {of}':<48}{'':>18}{_signed(document['explained_total_s']):>10}"]


def _notes(document: dict[str, Any]) -> list[str]:
    return [line for note in document["notes"] for line in ["", *wrap(f"Note: {note}.")]]


def _signed(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{number(abs(value))}"

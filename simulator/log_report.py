"""An imported log as text: what was found, damaged, derived and missing, and its numbers."""

from typing import Any

from rollsim.simulator.run_report import MEASURES
from rollsim.simulator.wording import number, pair, plural, wrap

_WIDE = 25
_COUNTS = {
    "status": ("finished", "finished"), "is_truncated": ("cut off at a limit", "truncated"),
    "prompt_tokens": ("prompt tokens", "prompt_tokens"), "output_tokens": ("output tokens", "output_tokens"),
    "num_preempted": ("preemptions", "preemptions"),
}  # fmt: skip


def text(document: dict[str, Any], wall_s: float | None = None) -> str:
    """Lay out a document of `run_document.log_document`; `wall_s` is how long the import took."""
    log = document["log"]
    lines = import_lines(log)
    lines += _lengths(document)
    if document["steps"]:
        lines += [line for section in MEASURES for line in section(document)]
    if wall_s is not None:
        lines += ["", f"Imported in {wall_s:.2f} s."]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def import_lines(log: dict[str, Any]) -> list[str]:
    """Say what the import found, derived and missed, and what was damaged."""
    lines = [*pair("log", f"{log['framework']}: {log['path']}")]
    for name in ("found", "derived"):
        lines += [line for entry in log[name] for line in pair(name, entry)]
    for name, value in log["facts"].items():
        lines += pair("fact", f"{name} {value:.15g}")
    lines += [""] + ([f"DAMAGED: {plural(log['fault_count'], 'fault')}"] if log["faults"] else ["Nothing was damaged."])
    for fault in log["faults"]:
        lines += wrap(f"- {fault['text'].removeprefix(log['path']).lstrip(': ')}", indent=2)
    if log["missing"]:
        lines += ["", "MISSING, and what would provide it"]
    for entry in log["missing"]:
        lines += wrap(f"- {entry['what']}: {entry['setting']}", indent=2)
    return lines


def _lengths(document: dict[str, Any]) -> list[str]:
    """Lengths and times of the trajectories, where there are any."""
    kpis = document["kpis"]
    if not kpis["trajectories"]:
        return []
    known = document["log"]["tables"]["rollouts"]["columns"]
    lines = ["", f"{'TRAJECTORIES, logged':<{_WIDE}}{kpis['trajectories']:>16,}"]
    for column, (label, kpi) in _COUNTS.items():
        lines.append(f"{label:<{_WIDE}}{f'{kpis[kpi]:,}' if column in known else 'not known':>16}")
    if kpis["makespan_s"] is not None:
        lines.append(f"{'from first to last, s':<{_WIDE}}{number(kpis['makespan_s']):>16}")
    for name, label in (("completion_s", "time of one, s"), ("first_token_s", "time to first token, s")):
        spread = kpis[name]
        if spread["n"]:
            known = [f"{p.upper()} {number(value)}" for p, value in spread["percentiles"].items() if value is not None]
            lines.append(f"{label:<{_WIDE}}{number(spread['mean']):>16}  {', '.join(known)}")
    return lines

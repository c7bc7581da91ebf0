"""Where the GPU time of a run went, as text: bubble by cause, the rest of the ledger, and the fate of generation."""

from typing import Any

from rollsim.simulator.wording import bar, named_row, number, percent
from rollsim.traces.bubble import BUBBLE

_ROUNDING = 1e-9


def bubble_lines(document: dict[str, Any]) -> list[str]:
    """Say what was held and not used, by pool and cause, and then what the rest was used for."""
    kpis = document["kpis"]
    if not kpis["ledger"]:
        return []
    lines = ["", f"{'BUBBLE (held and not used), predicted':<50}{'GPU-s':>10}{'share':>8}"]
    for use in document["bubble"]:
        lines += _row(f"{use['pool']} pool, {number(use['gpu_s'])} GPU-s", use["bubble_gpu_s"], use["bubble_share"])
        for line in use["causes"]:
            lines += _row(f"  {_name(line)}", line["gpu_s"], line["share"])
    lines += [
        "Shares are of the pool's GPU time.",
        "",
        f"{'WORK AND OVERHEAD, predicted':<50}{'GPU-s':>10}{'share':>8}",
    ]
    for line in kpis["ledger"]:
        if line["category"] not in BUBBLE:
            lines += _row(f"{line['pool']}: {_name(line)}", line["gpu_s"], line["share"])
    return lines + _row("all GPU time", kpis["gpu_s"], 1.0)


def fate_lines(document: dict[str, Any]) -> list[str]:
    """Say what became of the generation: a second breakdown of the same GPU-seconds."""
    found = document["fates"]
    if not found:
        return []
    lines = ["", f"{'FATE OF GENERATION, predicted':<50}{'GPU-s':>10}{'share':>8}"]
    for fate in found:
        reason = f": {fate['reason']}" if fate["reason"] else ""
        lines += _row(f"{fate['fate']}{reason}", fate["gpu_s"], fate["share"])
    return [*lines, "By tokens generated and recomputed; undecided: buffered or under way."]


def _name(line: dict[str, Any]) -> str:
    cause = f": {line['cause']}" if line["cause"] else ""
    return f"{line['category'].replace('_', ' ')}{cause}"


def _row(name: str, gpu_s: float, share: float) -> list[str]:
    """Nothing for what is there by rounding alone."""
    if share < _ROUNDING:
        return []
    return named_row(name, 50, f"{number(gpu_s):>10}{percent(share):>8} {bar(share, 1.0, 10)}")

"""Several replications of one config: the mean of each number, with its interval."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from rollsim.simulator.run_report import input_lines
from rollsim.simulator.trust_report import trust_lines
from rollsim.simulator.wording import number
from rollsim.traces.interval import interval
from rollsim.traces.step_kpis import PARTS

FORMAT = "rollsim-replications"
SCHEMA_VERSION = 2


def numbers(document: dict[str, Any]) -> dict[str, float | None]:
    """Headline numbers of one run's document, by what they are; None where it has none."""
    steps, age = document["steps"] or {}, document["staleness"] or {}
    found = {"a step, s": (steps.get("step_s") or {}).get("mean")}
    for name, seconds in (steps.get("parts_s") or {}).items():
        found[f"  {PARTS.get(name, 'warm-up, other')}, s"] = seconds
    found["a step without the first, s"] = (steps.get("later_s") or {}).get("mean")
    for clock in document["wall_clock"]:
        how = f"{clock['steps']:,} steps" + (", EXTRAPOLATED" if clock["extrapolated"] else "")
        found[f"{how}, hours"] = clock["seconds"] / 3600
        found[f"{how}, USD"] = clock["usd"]
    found["trained tokens/s, per GPU"] = steps.get("trained_tokens_per_gpu_s")
    found["generated tokens/s, per GPU"] = steps.get("generated_tokens_per_gpu_s")
    for use in document["bubble"]:
        found[f"bubble of the {use['pool']} pool, % of GPU-s"] = 100 * use["bubble_share"]
    return found | {"staleness, mean, versions": age.get("mean"), "staleness, most, versions": age.get("max")}


def summary(documents: Sequence[dict[str, Any]], seeds: Sequence[int]) -> dict[str, Any]:
    """Return means and intervals as JSON, and each run's document.

    Parameters
    ----------
    documents
        Of `run_document.document`.
    seeds
        Of each.
    """
    each = [numbers(document) for document in documents]
    names = list(dict.fromkeys(name for one in each for name in one))
    values = {name: [one.get(name) for one in each] for name in names}
    means = {
        name: asdict(interval(np.array([np.nan if value is None else value for value in column], float)))
        for name, column in values.items()
        if any(value is not None for value in column) and (any(column) or not name.startswith("  "))
    }
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "seeds": list(seeds),
        "means": means,
        "runs": list(documents),
    }


def text(document: dict[str, Any], wall_s: float | None = None) -> str:
    """Show what was run, the means, and what they rest on, 80 columns wide; `wall_s` is of all simulations together."""
    first, seeds = document["runs"][0], document["seeds"]
    lines = [*input_lines(first), "", f"{f'MEANS OF {len(seeds)} REPLICATIONS, predicted':<44}{'mean':>10}  95 %"]
    for name, mean in document["means"].items():
        ends = "" if mean["low"] is None else f"{number(mean['low'])} to {number(mean['high'])}"
        lines.append(f"{name:<44}{number(mean['mean']):>10}  {ends}")
    lines += [f"Seeds {', '.join(map(str, seeds[:8]))}{', ...' if len(seeds) > 8 else ''}; t intervals."]
    lines += trust_lines(max(document["runs"], key=_outside))
    if wall_s is not None:
        trajectories = sum(run["kpis"]["trajectories"] for run in document["runs"])
        lines += ["", f"Simulated {trajectories:,} trajectories in {wall_s:.2f} s."]
    return "\n".join(line.rstrip() for line in lines)


def _outside(run: dict[str, Any]) -> int:
    """In how many ways a run left the fitted range."""
    return len(run["basis"]["outside_range"]) if run["basis"] else 0

"""Several replications of one config: the mean of each number, with its interval."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from rollsim.traces.interval import interval

FORMAT = "rollsim-replications"
SCHEMA_VERSION = 1


def numbers(document: dict[str, Any]) -> dict[str, float | None]:
    """Headline numbers of one run's document; None where it has none."""
    steps, age = document["steps"] or {}, document["staleness"] or {}
    return {
        "step [s]": (steps.get("step_s") or {}).get("mean"),
        "span [s]": steps.get("span_s"),
        "trained tokens/s/GPU": steps.get("trained_tokens_per_gpu_s"),
        "generated tokens/s/GPU": steps.get("generated_tokens_per_gpu_s"),
        "staleness, mean": age.get("mean"),
        "staleness, max": age.get("max"),
    }


def summary(documents: Sequence[dict[str, Any]], seed: int) -> dict[str, Any]:
    """Return means and intervals as JSON, and each run's document.

    Parameters
    ----------
    documents
        Of `run_document.document`.
    seed
        Of the first; the others follow.
    """
    each = [numbers(document) for document in documents]
    means = {
        name: asdict(interval(np.array([np.nan if one[name] is None else one[name] for one in each], float)))
        for name in each[0]
    }
    seeds = list(range(seed, seed + len(documents)))
    return {
        "format": FORMAT, "schema_version": SCHEMA_VERSION, "seeds": seeds, "means": means, "runs": list(documents),
    }  # fmt: skip


def text(document: dict[str, Any]) -> str:
    """Show the means, 80 columns wide."""
    seeds = document["seeds"]
    lines = [f"{len(seeds)} replications, seeds {seeds[0]} to {seeds[-1]}; t intervals at 95 %", ""]
    for name, mean in document["means"].items():
        if mean["mean"] is not None:
            ends = "" if mean["low"] is None else f"  [{mean['low']:,.4g}, {mean['high']:,.4g}]"
            lines.append(f"{name:<24}{mean['mean']:>14,.4g}{ends}")
    return "\n".join(lines)

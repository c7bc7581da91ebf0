"""What a comparison needs of one run: headline numbers, its steps one by one, and its ledger per step and GPU."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rollsim.traces.bubble import bubbles
from rollsim.traces.kpis import kpis
from rollsim.traces.staleness import staleness
from rollsim.traces.step_kpis import step_kpis, step_seconds

LOOP = {
    "step_s": ("step time", "s"),
    "span_s": ("wall-clock of the run", "s"),
    "trained_tokens_per_gpu_s": ("tokens trained/s/GPU", ""),
    "generated_tokens_per_gpu_s": ("tokens generated/s/GPU", ""),
    "bubble_share": ("bubble, share of GPU time", ""),
    "staleness_mean": ("mean staleness", "versions"),
}
REPLAY = {
    "makespan_s": ("makespan", "s"),
    "output_tokens_per_s": ("output tokens/s", ""),
    "output_tokens_per_gpu_s": ("output tokens/s/rollout GPU", ""),
    "bubble_share": ("bubble, share of GPU time", ""),
}
Line = tuple[str, str, str | None]


@dataclass(frozen=True)
class Measured:
    """Numbers of a run.

    Attributes
    ----------
    seed
        What it is paired by; None if it drew nothing.
    headline
        Those of `LOOP`, or of `REPLAY` for a run without train steps; None where the tables cannot tell.
    by_step
        Those of them that a single step has, array [steps] each.
    steps
        Train steps; 0 for a run without.
    lines
        Seconds per GPU, and per step if there are steps, by pool, category and cause: they add up to the mean step
        time, or to the span of a run without steps.
    """

    seed: int | None
    headline: dict[str, float | None]
    by_step: dict[str, np.ndarray]
    steps: int
    lines: dict[Line, float]


def measure(tables: Mapping[str, pa.Table], seed: int | None = None) -> Measured:
    """Compute the numbers from ``rollouts`` and, where there are any, ``steps`` and ``ledger``."""
    numbers = kpis({name: table for name, table in tables.items() if name != "gauges"})
    headline: dict[str, float | None] = {"bubble_share": None}
    if numbers.gpu_s:
        headline["bubble_share"] = sum(use.bubble_gpu_s for use in bubbles(numbers.ledger)) / numbers.gpu_s
    steps, by_step = tables.get("steps"), {}
    if steps is not None and len(steps):
        loop = step_kpis(tables)
        age = staleness(tables["rollouts"])
        headline |= {name: getattr(loop, name) for name in LOOP if name == "span_s" or name.endswith("_per_gpu_s")}
        headline |= {"step_s": loop.step_s.mean, "staleness_mean": age.mean if age else None}
        by_step = _by_step(steps, loop.gpus)
        span_s = loop.span_s
    else:
        headline |= {name: getattr(numbers, name) for name in REPLAY if name != "bubble_share"}
        ends = tables["rollouts"]["t_end_s"].drop_null().to_numpy()
        span_s = float(ends.max()) if len(ends) else None
    count = len(steps) if steps is not None else 0
    share = span_s / numbers.gpu_s / max(count, 1) if span_s and numbers.gpu_s else 0.0
    lines = {(line.pool, line.category, line.cause): line.gpu_s * share for line in numbers.ledger}
    return Measured(seed, headline, by_step, count, lines)


def _by_step(steps: pa.Table, gpus: float | None) -> dict[str, np.ndarray]:
    seconds = step_seconds(steps)
    found = {"step_s": seconds}
    if gpus:
        ordered = steps.sort_by("step")
        tokens = sum(ordered[name].fill_null(0).to_numpy() for name in ("prompt_tokens", "output_tokens"))
        found["trained_tokens_per_gpu_s"] = tokens / (seconds * gpus)
    return found

"""Train steps of a run: their time and its parts, tokens per GPU-second, and the time of more steps than were run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollsim.traces.interval import Interval, interval
from rollsim.traces.kpis import Spread, spread

PARTS = {
    "generate_s": "wait for trajectories",
    "reward_s": "wait for rewards",
    "switch_s": "switch of roles",
    "logprob_s": "log-prob passes",
    "train_s": "train",
    "drain_s": "drain before new weights",
    "weight_sync_s": "weight sync",
    "checkpoint_s": "checkpoint",
    "validation_s": "validation",
}
_ROUNDING = 1e-9


@dataclass(frozen=True)
class StepKpis:
    """Headline numbers of the train steps.

    Attributes
    ----------
    step_s
        Time of a step, from the end of the one before (or time 0) to its own, when its weights were out and its
        validation over; the steps of one run depend on each other, so the interval is that of independent steps only
        as a guide.
    later_s
        The same without the first step, which finds an empty pool.
    spread_s
        Percentiles, where there are enough steps for them.
    parts_s
        Mean of each known part, and ``other_s`` for what none of them covers; they add up to the mean of `step_s`.
    span_s
        From time 0 to the end of the last step.
    gpus
        GPU-seconds over the span: those of the ledger, or of the GPUs that a log counts.
    trained_tokens
        Prompt and response tokens that steps consumed.
    trained_tokens_per_gpu_s
        Over all GPU-seconds: verl's ``perf/throughput``.
    generated_tokens_per_gpu_s
        All generated tokens, used or not, over all GPU-seconds.
    """

    steps: int
    step_s: Interval
    later_s: Interval
    spread_s: Spread
    parts_s: dict[str, float]
    span_s: float | None
    gpus: float | None
    trained_tokens: int
    trained_tokens_per_gpu_s: float | None
    generated_tokens_per_gpu_s: float | None

    def document(self) -> dict[str, object]:
        """Return the numbers as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class WallClock:
    """Seconds of so many steps; beyond those that were run they are extrapolated, with the interval of the mean."""

    steps: int
    seconds: float
    extrapolated: bool
    low_s: float | None = None
    high_s: float | None = None
    usd: float | None = None

    def document(self) -> dict[str, object]:
        """Return it as JSON."""
        return asdict(self)


def ended_s(steps: pa.Table) -> np.ndarray:
    """When each step was over [s], in the order of steps; the end of the sync where that is not known."""
    ordered = steps.sort_by("step")
    end_s = pc.add(ordered["t1_s"], pc.fill_null(ordered["weight_sync_s"], 0.0))
    return pc.coalesce(ordered["ended_s"], ordered["published_s"], end_s).to_numpy()


def step_seconds(steps: pa.Table) -> np.ndarray:
    """Time of each step [s]; NaN where it is not known, as of the first of a log that begins with the end of it."""
    ends_s = ended_s(steps)
    return np.where(ends_s == 0, np.nan, np.diff(ends_s, prepend=0.0))


def step_kpis(tables: Mapping[str, pa.Table]) -> StepKpis:
    """Compute the numbers from ``steps`` and, where there are any, ``rollouts`` and ``ledger``."""
    steps = tables["steps"]
    ends_s = ended_s(steps)
    seconds = step_seconds(steps)
    known_ends_s = ends_s[~np.isnan(ends_s)]
    span_s = float(known_ends_s[-1]) if len(known_ends_s) else None
    ledger, rollouts = tables.get("ledger"), tables.get("rollouts")
    gpu_s = _total(ledger, "gpu_s") or _logged_gpu_s(steps, seconds)
    trained = int(_total(steps, "prompt_tokens") + _total(steps, "output_tokens"))
    generated = _total(rollouts, "output_tokens")
    return StepKpis(
        steps=len(steps),
        step_s=interval(seconds),
        later_s=interval(seconds[1:]),
        spread_s=spread(seconds),
        parts_s=_parts(steps, seconds),
        span_s=span_s,
        gpus=gpu_s / span_s if span_s and gpu_s else None,
        trained_tokens=trained,
        trained_tokens_per_gpu_s=trained / gpu_s if gpu_s else None,
        generated_tokens_per_gpu_s=generated / gpu_s if gpu_s and rollouts is not None else None,
    )


def wall_clock(steps: pa.Table, count: int, usd_per_s: float | None = None) -> WallClock | None:
    """Seconds of `count` steps: as run if there are as many, else the mean of all but the first goes on.

    None if it is not known when each step ended.

    Parameters
    ----------
    usd_per_s
        Price of all GPUs [USD/s].
    """
    ends = ended_s(steps)
    run = len(ends)
    if not run or np.isnan(step_seconds(steps)).any():
        return None
    if count <= run:
        seconds = float(ends[count - 1])
        return WallClock(count, seconds, extrapolated=False, usd=None if usd_per_s is None else seconds * usd_per_s)
    more = interval(np.diff(ends) if run > 1 else ends).scaled(count - run)
    low, mean, high = (None if value is None else float(ends[-1]) + value for value in (more.low, more.mean, more.high))
    usd = None if mean is None or usd_per_s is None else mean * usd_per_s
    return WallClock(count, mean or 0.0, extrapolated=True, low_s=low, high_s=high, usd=usd)


def _parts(steps: pa.Table, seconds: np.ndarray) -> dict[str, float]:
    timed = ~np.isnan(seconds)
    if not timed.any():
        return {}
    ordered = steps.sort_by("step").filter(pa.array(timed))
    parts = {name: _total(ordered, name) / len(ordered) for name in PARTS if steps[name].null_count < len(steps)}
    mean_s = float(seconds[timed].mean())
    other_s = mean_s - sum(parts.values())
    return parts | {"other_s": 0.0 if abs(other_s) < _ROUNDING * mean_s else other_s}


def _logged_gpu_s(steps: pa.Table, seconds: np.ndarray) -> float:
    """GPU-seconds of a log that says how many GPUs it counts at each step; 0 if it does not."""
    gpu_s = steps.sort_by("step")["gpus"].to_numpy() * seconds
    return 0.0 if np.isnan(gpu_s).any() else float(gpu_s.sum())


def _total(table: pa.Table | None, name: str) -> float:
    return (pc.sum(table[name]).as_py() or 0) if table is not None else 0

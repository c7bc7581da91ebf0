"""Every split of the GPUs between rollout and training, run and compared."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollsim.simulator.config import Config, parse
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.setup import resolve
from rollsim.simulator.simulate import Simulated, simulate
from rollsim.simulator.world_failed import WorldFailed
from rollsim.traces.errors import BadInput
from rollsim.traces.interval import Interval, interval

FORMAT = "rollsim-split"
SCHEMA_VERSION = 1
# verl's fully asynchronous recipe logs the share of time in which the trainer waits for samples, and in which the
# rollouter does not generate (arXiv 2409.19256; recipe fully_async_policy).
TRAINER_IDLE, ROLLOUTER_IDLE = "trainer/idle_ratio", "rollouter/idle_ratio"
_WAITS = ("starved",)
_STANDS = ("throttled", "sync", "idle", "warm_up")


@dataclass(frozen=True)
class Split:
    """One way to share out the GPUs; `shared` ones serve both roles by turns."""

    rollout_gpus: int
    train_gpus: int
    shared: bool

    @property
    def name(self) -> str:
        """As people write it."""
        return f"{self.rollout_gpus} shared" if self.shared else f"{self.rollout_gpus} : {self.train_gpus}"


def splits(config: Config) -> list[Split]:
    """Shared GPUs first, then all splits in whole replicas; whether each can run is found by resolving it."""
    total = config.cluster.gpus
    size = load_profile(config.model.profile).parallelism.gpus
    return [Split(total, total, shared=True)] + [
        Split(rollout, total - rollout, shared=False) for rollout in range(size, total, size)
    ]


def with_split(config: Config, split: Split, file: str) -> Config:
    """The config with another allocation; shared GPUs take their weights where they are.

    Raises
    ------
    BadInput
        If the split cannot be: its policies need separate pools, or a role gets too few GPUs.
    """
    document = config.model_dump(mode="json")
    if split.shared:
        document["policies"]["allocation"] = "colocate"
        document["sync"]["path"] = "colocated"
    else:
        document["policies"]["allocation"] = {"use": "static_split", "rollout_gpus": split.rollout_gpus}
        if document["sync"]["path"] == "colocated":
            document["sync"]["path"] = "nccl"
    return parse(document, file)


def run_splits(
    config: Config, file: str, seed: int, replications: int, progress: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Run every split that can run; returns a row for each and the best, as JSON.

    Parameters
    ----------
    config : Config
        Its own allocation does not count.
    file : str
        Named in faults.
    seed, replications : int
        Every split sees the same seeds, `seed` and those after it.
    progress : callable, optional
        Called with the number of splits done.
    """
    rows = []
    for i, split in enumerate(splits(config)):
        rows.append(_row(config, split, file, range(seed, seed + replications)))
        if progress is not None:
            progress(i + 1)
    runnable = [row for row in rows if row["reason"] is None]
    best = min(runnable, key=lambda row: row["step_s"]["mean"], default=None)
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "config": file,
        "gpus": config.cluster.gpus,
        "profile": config.model.profile,
        "steps": config.train.steps,
        "seeds": list(range(seed, seed + replications)),
        "usd_per_gpu_hour": config.cluster.usd_per_gpu_hour,
        "rows": rows,
        "best": None if best is None else best["split"],
        "tied": [] if best is None else [row["split"] for row in runnable if row is not best and _ties(row, best)],
    }


def _row(config: Config, split: Split, file: str, seeds: range) -> dict[str, Any]:
    row: dict[str, Any] = {
        "split": split.name,
        "rollout_gpus": split.rollout_gpus,
        "train_gpus": split.train_gpus,
        "shared": split.shared,
        "reason": None,
    }
    try:
        changed = with_split(config, split, file)
        done = [simulate(resolve(changed, file, seed)) for seed in seeds]
    except BadInput as error:
        return row | {"reason": "; ".join(_short(fault) for fault in error.faults)}
    except WorldFailed as error:
        return row | {"reason": f"the world failed: {error}"}
    return row | _measured(done, config.cluster.usd_per_gpu_hour)


def _short(fault: Any) -> str:
    return ", ".join(str(part) for part in (fault.message or fault.place, fault.given) if part)


def _measured(done: list[Simulated], usd_per_gpu_hour: float | None) -> dict[str, Any]:
    documents = [one.document for one in done]
    gpus = done[0].setup.config.cluster.gpus
    # One run gives as many steps as it has, beyond the first, which finds an empty pool; several give their means.
    if len(done) == 1:
        later = documents[0]["steps"]["later_s"]
        step = Interval(later["n"], later["mean"], later["low"], later["high"])
    else:
        step = interval(np.array([document["steps"]["later_s"]["mean"] for document in documents], float))
    ages = [document["staleness"] for document in documents]
    hours = None if step.mean is None else step.mean * gpus / 3600
    return {
        "step_s": {"n": step.n, "mean": step.mean, "low": step.low, "high": step.high},
        TRAINER_IDLE: _mean(documents, "train", _WAITS),
        ROLLOUTER_IDLE: _mean(documents, "rollout", _STANDS),
        "rollout_bubble_share": _mean(documents, "rollout", ("tail_bubble", "throttled", "idle")),
        "staleness_mean": float(np.mean([age["mean"] for age in ages])),
        "staleness_max": max(int(age["max"]) for age in ages),
        "gpu_hours_per_step": hours,
        "usd_per_step": None if hours is None or usd_per_gpu_hour is None else hours * usd_per_gpu_hour,
    }


def _mean(documents: list[dict[str, Any]], pool: str, categories: tuple[str, ...]) -> float:
    """Share of a pool's GPU time that went to these categories, mean over the runs."""
    return float(np.mean([share(document["kpis"]["ledger"], pool, categories) for document in documents]))


def share(ledger: list[dict[str, Any]], pool: str, categories: tuple[str, ...]) -> float:
    """Share of a pool's GPU-seconds in some categories, of the lines of a run's ledger."""
    mine = [line for line in ledger if line["pool"] == pool]
    whole = sum(line["gpu_s"] for line in mine)
    return sum(line["gpu_s"] for line in mine if line["category"] in categories) / whole if whole else 0.0


def _ties(row: dict[str, Any], best: dict[str, Any]) -> bool:
    """Whether the intervals of two step times overlap."""
    a, b = row["step_s"], best["step_s"]
    return a["low"] is not None and b["high"] is not None and a["low"] <= b["high"]


def shown_rows(document: dict[str, Any]) -> Iterator[list[str]]:
    """Cells of the table for people: split, step time, idle of both sides, staleness, cost."""
    priced = document["usd_per_gpu_hour"] is not None
    for row in document["rows"]:
        if row["reason"] is not None:
            continue
        step, best = row["step_s"], " *" if row["split"] == document["best"] else ""
        half = "" if step["high"] is None else f"± {step['high'] - step['mean']:,.1f}"
        cost = row["usd_per_step"] if priced else row["gpu_hours_per_step"]
        yield [
            row["split"] + best,
            f"{step['mean']:,.1f}",
            half,
            f"{row[ROLLOUTER_IDLE]:.1%}",
            f"{row[TRAINER_IDLE]:.1%}",
            f"{row['staleness_mean']:.2f}/{row['staleness_max']}",
            f"{cost:,.2f}",
        ]


def refused(document: dict[str, Any]) -> list[str]:
    """Splits that cannot run, those with one reason together."""
    by_reason: dict[str, list[str]] = {}
    for row in document["rows"]:
        if row["reason"] is not None:
            by_reason.setdefault(row["reason"], []).append(row["split"])
    return [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]

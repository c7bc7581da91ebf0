"""Every split of the GPUs between rollout and training, run and compared."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rollsim.simulator.config import Config, parse
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.setup import resolve
from rollsim.simulator.simulate import simulate
from rollsim.simulator.world_failed import WorldFailed
from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.interval import Interval, interval
from rollsim.traces.step_kpis import step_seconds

FORMAT = "rollsim-split"
SCHEMA_VERSION = 1
# verl's fully asynchronous recipe logs the share of time in which the trainer waits for samples, and in which the
# rollouter does not generate (arXiv 2409.19256; recipe fully_async_policy).
TRAINER_IDLE, ROLLOUTER_IDLE = "trainer/idle_ratio", "rollouter/idle_ratio"
_WAITS = ("starved",)
_STANDS = ("throttled", "sync", "idle", "warm_up")
_BUBBLE = ("tail_bubble", "throttled", "idle")


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


@dataclass(frozen=True)
class Tried:
    """A split that has run, or why it cannot.

    Attributes
    ----------
    split : Split
    step_s : array
        Step times [s] that pair with those of other splits: the mean of each run, or every step of the only run; the
        first step of a run, which finds an empty pool, only if there is no other.
    documents : list of dict
        Of each run, as `run_document.document`.
    faults : list of Fault
        Why it cannot run, as far as the config is to blame.
    failure : str or None
        Why its world could not go on.
    """

    split: Split
    step_s: np.ndarray
    documents: list[dict[str, Any]]
    faults: list[Fault]
    failure: str | None = None

    @property
    def reason(self) -> str | None:
        """Why it cannot run, in words."""
        return self.failure or "; ".join(map(_short, self.faults)) or None


def _short(fault: Fault) -> str:
    return fault.message or f"{fault.place} {fault.given}: {fault.allowed}"


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

    Raises
    ------
    BadInput, WorldFailed
        If no split can run.
    """
    tried = []
    for i, split in enumerate(splits(config)):
        tried.append(_try(config, split, file, range(seed, seed + replications)))
        if progress is not None:
            progress(i + 1)
    ran = [one for one in tried if one.reason is None]
    if not ran:
        for one in tried:
            if one.failure is not None:
                raise WorldFailed(one.failure)
        raise BadInput({str(fault): fault for one in tried for fault in one.faults}.values())
    best = min(ran, key=lambda one: float(one.step_s.mean()))
    usd = config.cluster.usd_per_gpu_hour
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "config": file,
        "gpus": config.cluster.gpus,
        "profile": config.model.profile,
        "steps": config.train.steps,
        "seeds": list(range(seed, seed + replications)),
        "usd_per_gpu_hour": usd,
        "rows": [_row(one, best, config.cluster.gpus, usd) for one in tried],
        "best": best.split.name,
        "tied": [one.split.name for one in ran if one is not best and _ties(one, best)],
    }


def _try(config: Config, split: Split, file: str, seeds: range) -> Tried:
    documents, times = [], []
    nothing = np.empty(0)
    try:
        changed = with_split(config, split, file)
        for seed in seeds:
            done = simulate(resolve(changed, file, seed))
            documents.append(done.document)
            seconds = step_seconds(done.tables["steps"])
            times.append(seconds[1:] if len(seconds) > 1 else seconds)
    except BadInput as error:
        return Tried(split, nothing, [], error.faults)
    except WorldFailed as error:
        return Tried(split, nothing, [], [], f"the world failed: {error}")
    return Tried(split, times[0] if len(times) == 1 else np.array([each.mean() for each in times]), documents, [])


def _row(one: Tried, best: Tried, gpus: int, usd_per_gpu_hour: float | None) -> dict[str, Any]:
    """What is said of a split; numbers are means with the ends of their intervals, over the runs if there are several.

    The step time of a single run has the interval of its steps, what is measured once a run has none.
    """
    row = {"split": one.split.name, **asdict(one.split), "reason": one.reason}
    if one.reason is not None:
        return row
    step = interval(one.step_s)
    numbers = {
        "step_s": step,
        "behind_best_s": interval(one.step_s - best.step_s),
        TRAINER_IDLE: _shares(one, "train", _WAITS),
        ROLLOUTER_IDLE: _shares(one, "rollout", _STANDS),
        "rollout_bubble_share": _shares(one, "rollout", _BUBBLE),
        "staleness_mean": interval(np.array([document["staleness"]["mean"] for document in one.documents], float)),
        "gpu_hours_per_step": step.scaled(gpus / 3600),
    }
    if usd_per_gpu_hour is not None:
        numbers["usd_per_step"] = step.scaled(gpus / 3600 * usd_per_gpu_hour)
    row["staleness_max"] = max(int(document["staleness"]["max"]) for document in one.documents)
    return row | {name: asdict(number) for name, number in numbers.items()}


def _shares(one: Tried, pool: str, categories: tuple[str, ...]) -> Interval:
    """Share of a pool's GPU time that went to these categories, over the runs."""
    return interval(np.array([share(document["kpis"]["ledger"], pool, categories) for document in one.documents]))


def share(ledger: list[dict[str, Any]], pool: str, categories: tuple[str, ...]) -> float:
    """Share of a pool's GPU-seconds in some categories, of the lines of a run's ledger."""
    mine = [line for line in ledger if line["pool"] == pool]
    whole = sum(line["gpu_s"] for line in mine)
    return sum(line["gpu_s"] for line in mine if line["category"] in categories) / whole if whole else 0.0


def _ties(one: Tried, best: Tried) -> bool:
    """Whether the interval of the paired difference of two step times holds 0: both saw the same draws."""
    behind = interval(one.step_s - best.step_s)
    return behind.low is not None and behind.low <= 0

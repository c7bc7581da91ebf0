"""Step metrics as columns of ``steps``: what frameworks define differently is converted here, and said."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rollsim.traces.importers.damage import Damage
from rollsim.traces.metric_names import meanings
from rollsim.traces.schema import STEPS

_LENGTHS = ("response_tokens_mean", "response_tokens_min", "response_tokens_max", "prompt_tokens_mean",
            "prompt_tokens_max")  # fmt: skip
_SHARES = ("truncated_share", "aborted_share")
_PHASES = ("generate_s", "reward_s", "logprob_s", "advantage_s", "train_s", "weight_sync_s", "validation_s",
           "checkpoint_s")  # fmt: skip
_SAME_CLOCK_S = 86_400.0
# Step times leave out a little that the clock has, never the other way round.
_LATE = 0.99
# Logged means have three decimals: a count derived from them may be off by that.
_ROUNDING = 1e-3


@dataclass
class Meanings:
    """Columns of the ``steps`` table, array [steps] each with NaN where nothing is known.

    Parameters
    ----------
    columns
        By name.
    derived
        What was computed, and how, in sentences.
    facts
        Single numbers of the whole run.
    """

    columns: dict[str, np.ndarray]
    derived: list[str] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)


def read_meanings(
    framework: str,
    values: Sequence[dict[str, float]],
    clock_s: np.ndarray,
    zero_s: float | None,
    damage: Damage,
    numbers: Sequence[int],
) -> Meanings:
    """Convert the metrics of a run.

    Parameters
    ----------
    framework
        A name in `rollsim.traces.metric_names.FRAMEWORKS`.
    values
        Metrics by name, one a step, in the order of steps.
    clock_s
        Clock time of each step [s], NaN where there is none.
    zero_s
        Earliest time of the trajectories on that clock [s], None without any.
    damage
        Where impossible values are counted.
    numbers
        Number of each step, for messages.
    """
    said = [meanings(framework, step) for step in values]
    known = {
        name: np.array([step.get(name, np.nan) for step in said]) for name in dict.fromkeys(n for s in said for n in s)
    }
    _refuse(known, damage, numbers)
    read = Meanings({})
    read.columns = dict(known)
    if framework in _CONVERT:
        _CONVERT[framework](read)
    _ends(read, clock_s, zero_s, damage, numbers)
    read.columns = {name: column for name, column in read.columns.items() if name in STEPS.names}
    return read


def _refuse(known: dict[str, np.ndarray], damage: Damage, numbers: Sequence[int]) -> None:
    """Take out negative times and lengths, and shares outside 0 to 1."""
    for name, column in known.items():
        if name.endswith("_s") and not name.endswith("per_gpu_s"):
            bad, allowed = column < 0, "seconds, at least 0"
        elif name in _LENGTHS:
            bad, allowed = column < 0, "tokens, at least 0"
        elif name in _SHARES:
            bad, allowed = (column < 0) | (column > 1), "0 to 1"
        else:
            continue
        for index in np.flatnonzero(bad).tolist():
            damage.add(f"{name} is impossible, and not used", f"step {numbers[index]}", float(column[index]), allowed)
        column[bad] = np.nan


def _ends(read: Meanings, clock_s: np.ndarray, zero_s: float | None, damage: Damage, numbers: Sequence[int]) -> None:
    """When each step ended: by the log's clock, else step times laid end to end."""
    step_s = read.columns.get("step_s", np.full(len(clock_s), np.nan))
    if not np.isnan(clock_s).any() and _is_behind(clock_s, step_s, damage, numbers):
        clock_s = np.full(len(clock_s), np.nan)
    if len(clock_s) > 1 and not np.isnan(clock_s).any():
        begin_s = clock_s[0] - (0.0 if np.isnan(step_s[0]) else step_s[0])
        shared = zero_s is not None and abs(begin_s - zero_s) < _SAME_CLOCK_S
        read.facts["zero_s"] = min(begin_s, zero_s) if zero_s is not None and shared else float(begin_s)
        if zero_s is not None and not shared:
            read.facts.pop("zero_s")
            damage.add("steps and trajectories are on clocks more than a day apart; each counts from its own", "")
        read.columns["ended_s"] = clock_s - read.facts.get("zero_s", begin_s)
        first = "" if not np.isnan(step_s[0]) else ", from the end of the first, whose time is not known"
        read.derived.append(f"ends of steps: the log's clock{first}")
    elif not np.isnan(step_s).all():
        absent = np.isnan(step_s)
        for index in np.flatnonzero(absent).tolist():
            damage.add("a step without its step time; it ends nowhere", f"step {numbers[index]}")
        read.columns["ended_s"] = np.where(absent, np.nan, np.nancumsum(step_s))
        read.derived.append("ends of steps: step times laid end to end, for the log has no clock")


def _is_behind(clock_s: np.ndarray, step_s: np.ndarray, damage: Damage, numbers: Sequence[int]) -> bool:
    """Tell whether a clock moved on less than a step took, as when records were written late; counted."""
    behind = np.flatnonzero(np.diff(clock_s) < _LATE * step_s[1:] - 1.0)
    for index in behind.tolist():
        what = "the clock moved on less than the step took; clock times are not used"
        damage.add(what, f"step {numbers[index + 1]}", float(clock_s[index + 1] - clock_s[index]))
    return bool(len(behind))


def _verl(read: Meanings) -> None:
    """Counts and GPUs out of means and throughput; what ``clip_ratio`` means when batches are padded to their longest.

    ``perf/throughput`` is all tokens over step time and GPUs; ``perf/total_num_tokens`` is prompts and responses.
    """
    columns = read.columns
    if "step_s" not in columns and {"generate_s", "train_s"} <= columns.keys():
        parts = [columns[name] for name in _PHASES if name in columns]
        columns["step_s"] = np.where(np.isnan(parts[0]), np.nan, np.nansum(parts, axis=0))
        read.derived.append(
            "step time: the sum of its phases, 99.7 to 100 % of it in logs that have both (315 steps of two runs)"
        )
    total, prompt, response = (
        columns.get(name) for name in ("total_tokens", "prompt_tokens_mean", "response_tokens_mean")
    )
    if total is not None and prompt is not None and response is not None:
        with np.errstate(invalid="ignore", divide="ignore"):
            exact = total / (prompt + response)
        count = np.round(exact)
        fits = np.abs(exact - count) <= np.maximum(_ROUNDING * exact / (prompt + response) * 2, 1e-6 * exact)
        columns["trajectories"] = np.where(fits, count, np.nan)
        columns["prompt_tokens"] = np.round(columns["trajectories"] * prompt)
        columns["output_tokens"] = total - columns["prompt_tokens"]
        read.derived.append("trajectories of a step: all its tokens over the mean length of prompt and response")
        read.derived.append("prompt and output tokens of a step: their means times its trajectories")
    rate, step_s = columns.get("step_tokens_per_gpu_s"), columns.get("step_s")
    if total is not None and rate is not None and step_s is not None:
        with np.errstate(invalid="ignore", divide="ignore"):
            exact = total / (rate * step_s)
        columns["gpus"] = np.where(np.abs(exact - np.round(exact)) < 0.01 * exact, np.round(exact), np.nan)
        read.derived.append("GPUs: all tokens of a step over its time and tokens per GPU-second")
    read.derived.append(
        "lengths of responses hold what tools added: verl counts the attention mask, not generated tokens"
    )
    _padded_clips(read)
    if columns.keys() & {"trainer_idle_share", "rollout_idle_share"}:
        read.derived.append(
            "fully asynchronous: times are sums over the local steps of a weight sync; generation is the wait for it"
        )


def _padded_clips(read: Meanings) -> None:
    """Tell a limit from the width of a batch: only at a limit is the longest response the same in every batch."""
    longest, clipped = read.columns.get("response_tokens_max"), read.columns.get("truncated_share")
    if longest is None or clipped is None or np.isnan(longest).all():
        return
    limit = np.nanmax(longest)
    short = (clipped > 0) & (longest < limit)
    if short.any():
        clipped[short] = np.nan
        what = f"clip_ratio of {short.sum()} of {len(short)} steps is not used: their batch was padded to its longest"
        read.derived.append(f"{what} response, shorter than the limit, so that it counts responses that were not cut")
    if ((clipped > 0) & (longest == limit)).any():
        read.facts["max_output_tokens"] = float(limit)
        read.derived.append(f"limit of responses: {limit:g} tokens, where they were cut")


def _slime(read: Meanings) -> None:
    """The trainer's wait as wait for trajectories; ``perf/tokens_per_gpu_per_sec`` is of the rollout alone."""
    columns = read.columns
    wait = columns.get("trainer_wait_s")
    rollout = columns.get("generate_s")
    if wait is not None:
        sync = np.nan_to_num(columns.get("weight_sync_s", np.zeros(len(wait))))
        exposed = np.maximum(wait - sync, 0.0)
        columns["generate_s"] = exposed if rollout is None else np.fmin(exposed, rollout)
        read.derived.append(
            "wait for trajectories: the trainer's wait less the weight sync in it, at most the time of the rollout"
        )
    read.derived.append(
        "tokens per GPU-second of slime are response tokens over the time of the rollout, not of the step"
    )


def _openrlhf(read: Meanings) -> None:
    """Synchronous, ``step_total`` is the sum of all phases; asynchronous, wall time with the wait for trajectories."""
    columns = read.columns
    generate_s, step_s = columns.get("generate_s"), columns.get("step_s")
    own = [columns[name] for name in ("logprob_s", "train_s", "weight_sync_s") if name in columns]
    if step_s is None or generate_s is None or not own:
        return
    own_s = np.nansum(own, axis=0)
    if (own_s + generate_s > step_s * (1 + 1e-6)).any():
        columns["generate_s"] = np.maximum(step_s - own_s, 0.0)
        read.derived.append(
            "asynchronous (generation overlaps the step): the wait for trajectories is the step less its other phases"
        )
    else:
        read.derived.append("synchronous (generation is within the step): the step is the sum of its phases")


def _trl(read: Meanings) -> None:
    if "step_s" in read.columns:
        read.derived.append(
            "step time is the mean of the steps since the last record, without optimizer and checkpoint"
        )


def _prime_rl(read: Meanings) -> None:
    read.derived.append("lengths are of the rollouts that were trained on (effective) if those are logged, else of all")


def _nemo_rl(read: Meanings) -> None:
    read.derived.append("lengths of responses are generated tokens, without what environments added")


_CONVERT: dict[str, Callable[[Meanings], None]] = {
    "verl": _verl, "slime": _slime, "openrlhf": _openrlhf, "trl": _trl, "prime-rl": _prime_rl, "nemo-rl": _nemo_rl,
}  # fmt: skip

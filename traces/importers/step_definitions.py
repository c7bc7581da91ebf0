"""Where frameworks define a step metric differently: it is converted, and said.

Sources: the code of verl 0.9.1, AReaL 1.0.4, OpenRLHF 0.11.2, SkyRL 0.3.0 and TRL 1.16.0; for slime, prime-rl and
NeMo-RL see `rollsim.traces.metric_names`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

_PHASES = ("generate_s", "reward_s", "switch_s", "logprob_s", "advantage_s", "train_s", "weight_sync_s", "validation_s",
           "checkpoint_s")  # fmt: skip
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


def _verl(read: Meanings) -> None:
    """Phases, counts, validation, and what ``clip_ratio`` means when batches are padded to their longest."""
    columns = read.columns
    if "step_s" not in columns and {"generate_s", "train_s"} <= columns.keys():
        parts = [columns[name] for name in _PHASES if name in columns]
        columns["step_s"] = np.where(np.isnan(parts[0]), np.nan, np.nansum(parts, axis=0))
        read.derived.append(
            "step time: the sum of its phases, 99.7 to 100 % of it in logs that have both (315 steps of two runs)"
        )
    _counts(read)
    read.derived.append(
        "lengths of responses hold what tools added: verl counts the attention mask, not generated tokens"
    )
    _validation_after(read, always=False)
    _padded_clips(read)
    if columns.keys() & {"trainer_idle_share", "rollout_idle_share"}:
        read.derived.append(
            "fully asynchronous: times are sums over the local steps of a weight sync; generation is the wait for it"
        )


def _counts(read: Meanings) -> None:
    """Trajectories, prompt and output tokens and GPUs of a step, out of all its tokens, mean lengths and throughput.

    verl's ``perf/throughput`` and NeMo-RL's ``tokens_per_sec_per_gpu`` are all tokens, prompts and responses, over step
    time and GPUs. Counts that do not come out whole are not used: then tools added tokens.
    """
    columns = read.columns
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


def _validation_after(read: Meanings, *, always: bool) -> None:
    """Add validation to the step, where the step's own time leaves it out: always, or where the parts are longer."""
    columns = read.columns
    step_s, validation_s = columns.get("step_s"), columns.get("validation_s")
    if step_s is None or validation_s is None:
        return
    parts = np.nansum([columns[name] for name in _PHASES if name in columns], axis=0)
    if always or (parts > step_s * (1 + 1e-3)).any():
        columns["step_s"] = step_s + np.nan_to_num(validation_s)
        read.derived.append("a step ends with its validation, which its logged time leaves out")


def _skyrl(read: Meanings) -> None:
    """Validation comes after the step; tokens per GPU-second are of training alone."""
    _validation_after(read, always=True)
    read.derived.append("tokens per GPU-second of SkyRL are over the time and the GPUs of training alone")


def _areal(read: Meanings) -> None:
    """Sequences are prompt and response; prompts hold what tools added."""
    columns = read.columns
    if "sequence_tokens_mean" in columns and "prompt_tokens_mean" in columns:
        columns["response_tokens_mean"] = columns["sequence_tokens_mean"] - columns["prompt_tokens_mean"]
        read.derived.append("response lengths: sequences less prompts, generated tokens alone")
    read.derived.append("no share cut at a limit: no_eos_ratios counts sequences as long as the longest of their batch")


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
    _counts(read)
    read.derived.append("lengths of responses are generated tokens, without what environments added")


CONVERSIONS: dict[str, Callable[[Meanings], None]] = {
    "verl": _verl, "areal": _areal, "slime": _slime, "openrlhf": _openrlhf, "nemo-rl": _nemo_rl,
    "prime-rl": _prime_rl, "skyrl": _skyrl, "trl": _trl,
}  # fmt: skip

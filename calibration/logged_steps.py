"""Train steps as a training log tells them: seconds of each phase, and the lengths of the batch."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rollsim.traces.errors import BadInput, Fault

_LENGTHS = ("prompt_tokens_mean", "response_tokens_mean", "response_tokens_max")
PHASES = (
    "generate_s", "reward_s", "switch_s", "logprob_s", "train_s", "drain_s", "weight_sync_s", "checkpoint_s",
    "validation_s",
)  # fmt: skip


@dataclass(frozen=True)
class LoggedSteps:
    """Steps of a log that tell all that is needed, in their order.

    Attributes
    ----------
    file
        The log.
    number : array [steps]
        Of each step, in the log.
    prompt_tokens, output_tokens, longest_tokens : array [steps]
        Mean prompt, mean response and longest response of the batch [tokens].
    cut_share : array [steps]
        Share of the responses that were cut; 0 if the log does not tell it.
    trajectories : array [steps], optional
        How many there were; None if the log does not tell.
    seconds
        Known phases of `PHASES`, and ``step_s`` if it is told: array [steps] each.
    notes
        What a user should know of how it was read: steps that were left out, and why.
    """

    file: str
    number: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    longest_tokens: np.ndarray
    cut_share: np.ndarray
    trajectories: np.ndarray | None
    seconds: Mapping[str, np.ndarray]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.number)


def logged_steps(steps: pa.Table, file: str) -> LoggedSteps:
    """Take the table ``steps`` of an imported log; rows that lack what others have are left out, and counted.

    Parameters
    ----------
    steps
        As of `rollsim.traces.schema`; nulls are what the log does not tell.
    file
        Of the log.

    Raises
    ------
    BadInput
        The log tells no lengths; names each that is missing.
    """
    absent = [name for name in _LENGTHS if steps[name].null_count == len(steps)]
    if absent:
        message = "the log does not tell it; without lengths no time of a step means anything"
        raise BadInput(
            Fault(file, name, allowed="a mean and a longest length of each batch", message=message) for name in absent
        )
    columns = {name: _numbers(steps, name) for name in (*_LENGTHS, *PHASES, "ended_s", "step", "trajectories")}
    columns["step_s"] = _durations(columns["step"], columns["ended_s"])
    seconds = {name: columns[name] for name in (*PHASES, "step_s") if not np.isnan(columns[name]).all()}
    for name in ("checkpoint_s", "validation_s", "reward_s"):
        if name in seconds:
            seconds[name] = np.nan_to_num(seconds[name])
    needed = np.array([columns[name] for name in _LENGTHS] + list(seconds.values()))
    whole = np.isfinite(needed).all(axis=0)
    notes = []
    if not whole.all():
        notes.append(f"{(~whole).sum()} of {len(steps)} steps of the log lack what the others tell, and are left out")
    counts = columns["trajectories"][whole]
    if np.isnan(counts).all():
        notes.append("the log does not tell how many trajectories a step has: as many as in the config are taken")
    return LoggedSteps(
        file=file,
        number=columns["step"][whole].astype(np.int64),
        prompt_tokens=columns["prompt_tokens_mean"][whole],
        output_tokens=columns["response_tokens_mean"][whole],
        longest_tokens=columns["response_tokens_max"][whole],
        cut_share=np.nan_to_num(_numbers(steps, "truncated_share")[whole]),
        trajectories=None if np.isnan(counts).all() else counts,
        seconds={name: values[whole] for name, values in seconds.items()},
        notes=tuple(notes),
    )


def _numbers(steps: pa.Table, name: str) -> np.ndarray:
    return steps[name].cast(pa.float64()).to_numpy()


def _durations(number: np.ndarray, ended_s: np.ndarray) -> np.ndarray:
    """From the end of one step to that of the next; NaN where the one before is not known."""
    durations = np.diff(ended_s, prepend=0.0)
    durations[1:][np.diff(number) != 1] = np.nan
    return durations

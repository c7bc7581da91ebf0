"""Step metrics as columns of ``steps``."""

from collections.abc import Sequence

import numpy as np

from rollsim.traces.importers.damage import Damage
from rollsim.traces.importers.step_definitions import CONVERSIONS, Meanings
from rollsim.traces.metric_names import meanings
from rollsim.traces.schema import STEPS

_LENGTHS = ("response_tokens_mean", "response_tokens_min", "response_tokens_max", "prompt_tokens_mean",
            "prompt_tokens_max")  # fmt: skip
_SHARES = ("truncated_share", "aborted_share")
_SAME_CLOCK_S = 86_400.0
# Step times leave out a little that the clock has, never the other way round.
_LATE = 0.99


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
    if framework in CONVERSIONS:
        CONVERSIONS[framework](read)
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

"""What is known of each train step, by the meanings of `rollsim.traces.metric_names`."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollsim.traces.metric_names import METRIC_NAMES
from rollsim.traces.step_kpis import ended_s

# Of a trajectory table, by step: our column, and what is made of it.
_OF_TRAJECTORIES = {
    "response_tokens_mean": ("response", "mean"), "response_tokens_min": ("response", "min"),
    "response_tokens_max": ("response", "max"), "truncated_share": ("truncated", "mean"),
    "prompt_tokens_mean": ("prompt_tokens", "mean"), "prompt_tokens_max": ("prompt_tokens", "max"),
    "reward_mean": ("reward", "mean"),
}  # fmt: skip


def step_values(tables: Mapping[str, pa.Table]) -> dict[str, np.ndarray]:
    """Return columns by meaning, array [steps] each in the order of steps, NaN where nothing is known; and ``step``.

    Parameters
    ----------
    tables
        ``steps`` and, where there are any, ``rollouts`` and ``ledger``.
    """
    steps = tables["steps"].sort_by("step")
    numbers = steps["step"].to_numpy()
    values = {name: steps[name].to_numpy().astype(float) for name in METRIC_NAMES if name in steps.column_names}
    ends_s = ended_s(steps)
    values["step_s"] = np.diff(ends_s, prepend=0.0)
    values["ended_s"] = ends_s
    for name, made in _by_step(tables.get("rollouts"), numbers).items():
        values[name] = np.where(np.isnan(values[name]), made, values[name])
    prompt, output, count = (
        steps[name].to_numpy().astype(float) for name in ("prompt_tokens", "output_tokens", "trajectories")
    )
    values["total_tokens"] = prompt + output
    with np.errstate(invalid="ignore", divide="ignore"):
        values["prompt_tokens_mean"] = np.where(np.isnan(prompt), values["prompt_tokens_mean"], prompt / count)
        values["response_tokens_mean"] = np.where(np.isnan(output), values["response_tokens_mean"], output / count)
        values["step_tokens_per_gpu_s"] = values["total_tokens"] / (values["step_s"] * _gpus(tables, steps, ends_s))
    values["sequence_tokens_mean"] = values["prompt_tokens_mean"] + values["response_tokens_mean"]
    values["trainer_wait_s"] = values["generate_s"] + np.nan_to_num(values["weight_sync_s"])
    known = {name: column for name, column in values.items() if not np.isnan(column).all()}
    return known | {"step": numbers.astype(float)}


def _gpus(tables: Mapping[str, pa.Table], steps: pa.Table, ends_s: np.ndarray) -> np.ndarray:
    """GPUs of each step: those of a log, or all that the ledger holds."""
    ledger = tables.get("ledger")
    if ledger is None or not len(ledger) or not len(ends_s):
        return steps["gpus"].to_numpy().astype(float)
    return np.full(len(steps), (pc.sum(ledger["gpu_s"]).as_py() or np.nan) / ends_s[-1])


def _by_step(rollouts: pa.Table | None, numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Make means and extremes of the trajectories that each step consumed."""
    nothing = {name: np.full(len(numbers), np.nan) for name in _OF_TRAJECTORIES}
    if rollouts is None or rollouts["step_trained"].null_count == len(rollouts):
        return nothing
    env = pc.fill_null(rollouts["env_tokens"], 0)
    columns = {
        "step": rollouts["step_trained"],
        "response": pc.add(rollouts["output_tokens"], env),
        "truncated": rollouts["is_truncated"].cast(pa.int8()),
        "prompt_tokens": rollouts["prompt_tokens"],
        "reward": rollouts["reward"],
    }
    wanted = list(_OF_TRAJECTORIES.values())
    grouped = pa.table(columns).filter(pc.is_valid(columns["step"])).group_by("step").aggregate(wanted)
    place = {number: index for index, number in enumerate(numbers.tolist())}
    rows = [place.get(number, -1) for number in grouped["step"].to_pylist()]
    for name, (column, how) in _OF_TRAJECTORIES.items():
        made = grouped[f"{column}_{how}"].to_numpy()
        for row, value in zip(rows, made.tolist(), strict=True):
            if row >= 0 and value is not None:
                nothing[name][row] = value
    return nothing

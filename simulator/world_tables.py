"""A world that has run, as the tables of a run: whole columns, one by one."""

from typing import Any

import numpy as np
import pyarrow as pa

from rollsim.simulator.ledger import fate_shares, ledger
from rollsim.simulator.segments import segments
from rollsim.simulator.trajectories import DISCARDED, NOT_YET, REASONS, TRAINED
from rollsim.simulator.world import World
from rollsim.traces.schema import TABLES, build

_TIMES = ("t_submit_s", "t_start_s", "t_first_token_s", "t_end_s", "t_final_s")
# Column of `rollouts` to field of a trajectory's record; -1 is not known.
_NUMBERS = {
    "group_id": "group",
    "prompt_id": "prompt",
    "visit": "visit",
    "attempt": "attempts",
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
    "cached_tokens": "cached_tokens",
    "recomputed_tokens": "recomputed_tokens",
    "num_preempted": "num_preempted",
    "replica": "replica",
    "version_start": "version_start",
    "version_end": "version_end",
    "version_trained": "version_trained",
    "step_trained": "step_trained",
}
_FATES = {NOT_YET: "undecided", TRAINED: "trained", DISCARDED: "discarded"}


def tables(world: World) -> dict[str, pa.Table]:
    """Make the tables of a run; ``segments`` only if the config asks for them.

    Sums are settled where the run ended: what is under way then is in flight, and its work undecided.
    """
    rows = world.trajectories.rows
    made = {
        "rollouts": rollouts(rows, world.setup.limits.max_model_len),
        "steps": steps(world.steps, rows),
        "spans": spans(world.spans),
        "gauges": gauges(world),
        "ledger": ledger(world.leases.all, fate_shares(rows)),
    }
    if world.setup.config.record.segments:
        logs = [s.span[: s.engine[0]["span_n"]] for s in world.pool.states()]
        made["segments"] = segments(rows, logs, world.pool.owners())
    return {name: made[name] for name in TABLES if name in made}


def rollouts(rows: np.ndarray, max_model_len: int) -> pa.Table:
    """Trajectories as a table, in the order of their starts.

    Parameters
    ----------
    rows : array [n] of TRAJECTORY
    max_model_len : int
        Tokens of prompt and response that a replica takes.
    """
    room = max_model_len - rows["prompt_tokens"]
    ended = rows["t_end_s"] >= 0
    # What was taken off its replica has an end, too.
    cut = ended & (rows["fate"] == DISCARDED) & (rows["output_tokens"] < np.minimum(rows["target_tokens"], room))
    finished = ended & ~cut
    truncated = rows["truncated"] | (rows["output_tokens"] < rows["target_tokens"])
    reason, status = truncated.astype(np.int8), np.full(len(rows), 2, np.int8)
    reason[cut] = 2
    status[cut], status[finished] = 1, 0
    fields = _NUMBERS | dict(zip(_TIMES, _TIMES, strict=True))
    # Arrow arrays one by one: there may be many millions of rows.
    return build(
        "rollouts",
        {name: _known(rows[field]) for name, field in fields.items()}
        | {
            "framework": "rollsim",
            "sample_id": pa.array(np.arange(len(rows))).cast(pa.string()),
            "is_extra": np.ascontiguousarray(rows["extra"]),
            "is_truncated": pa.array(truncated, mask=~finished),
            "finish_reason": _labels(reason, ("stop", "length", "abort"), ended),
            "max_output_tokens": room,
            # Drawn at the start, but known to nobody before it is final.
            "reward": pa.array(rows["reward"].astype(float), mask=(rows["t_final_s"] < 0) | np.isnan(rows["reward"])),
            "reward_s": pa.array(rows["reward_s"].astype(float), mask=rows["t_final_s"] < 0),
            "status": _labels(status, ("finished", "aborted", "in_flight")),
            "fate": _labels(rows["fate"], tuple(_FATES[code] for code in range(len(_FATES)))),
            "discard_reason": _labels(rows["reason"], REASONS, rows["reason"] >= 0),
        },
    )


def steps(rows: list[dict[str, float]], trajectories: np.ndarray) -> pa.Table:
    """Train steps as a table, with the staleness of what each consumed.

    Parameters
    ----------
    rows
        Columns by name, one row a step.
    trajectories : array [n] of TRAJECTORY
    """
    names = list(rows[0]) if rows else []
    columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in names}
    number = columns.setdefault("step", np.empty(0, np.int64))
    if rows:
        mean, largest = _staleness(trajectories, int(number.max()) + 1)
        columns["staleness_mean"], columns["staleness_max"] = mean[number], largest[number]
    return build("steps", columns)


def _staleness(rows: np.ndarray, steps: int) -> tuple[np.ndarray, np.ma.MaskedArray]:
    """Mean and largest staleness by number of the step, [steps] each; not known for a step that consumed nothing."""
    trained = rows["fate"] == TRAINED
    step = rows["step_trained"][trained]
    age = rows["version_trained"][trained] - rows["version_start"][trained]
    count = np.bincount(step, minlength=steps)
    largest = np.full(len(count), -1, np.int64)
    np.maximum.at(largest, step, age)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(step, age, steps) / count
    return mean, np.ma.masked_array(largest, count == 0)


def spans(rows: list[tuple[str, str, float, float]]) -> pa.Table:
    """What lanes were busy with, as a table."""
    lanes, names, t0_s, t1_s = zip(*rows, strict=True) if rows else ((),) * 4
    return build(
        "spans",
        {
            "lane": pa.array(lanes, pa.string()),
            "name": pa.array(names, pa.string()),
            "t0_s": np.array(t0_s, float),
            "t1_s": np.array(t1_s, float),
        },
    )


def gauges(world: World) -> pa.Table:
    """Samples of the state of each replica up to the end of the run."""
    limits = world.setup.limits
    logs = [s.gauge[: s.engine[0]["gauge_n"]] for s in world.pool.states()]
    logs = [log[log["t_s"] <= world.end_s] for log in logs]
    rows = np.concatenate(logs)
    return build(
        "gauges",
        {
            "t_s": rows["t_s"],
            "replica": np.repeat(np.arange(len(logs)), [len(log) for log in logs]),
            "running": rows["running"],
            "waiting": rows["waiting"],
            "kv_used_blocks": rows["blocks"],
            "kv_total_blocks": limits.num_blocks * limits.lockstep_ranks,
            "num_preempted": rows["preemptions"],
        },
    )


def _known(values: np.ndarray) -> pa.Array:
    """Numbers of which those below 0 are not known."""
    return pa.array(np.ascontiguousarray(values), mask=values < 0)


def _labels(code: np.ndarray, names: tuple[str, ...], known: np.ndarray | None = None) -> pa.Array:
    """Labels by their number in `names`."""
    mask = None if known is None else ~known
    return pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32), mask=mask), names)

"""Recordings of a measurement as tables of `rollsim.traces.schema`: one row per engine step, and per request."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from rollsim.simulator.recording import SYNC_COLUMNS
from rollsim.traces.schema import build

Recording = Mapping[str, Any]


def engine_steps(recordings: Mapping[str, Recording]) -> pa.Table:
    """One row for each step of each repeat of each batch."""
    names = ("batch", "repeat", "step", "t1_s", "wall_s", "cpu_s", "host_s")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    rows: list[list[int]] = []
    for name, repeat, recording, times in _repeats(recordings):
        count = len(recording["rows"])
        columns["batch"] += [name] * count
        columns["repeat"] += [repeat] * count
        columns["step"] += range(count)
        columns["t1_s"] += _ends_s(times)
        columns["wall_s"] += [wall / 1e3 for wall in times["wall_ms"]]
        columns["cpu_s"] += [cpu / 1e3 for cpu in times["cpu_ms"]]
        columns["host_s"] += [None if host is None else host / 1e3 for host in times["host_wall_ms"]]
        rows += recording["rows"]
    counts = np.array(rows, dtype=np.int64).reshape(len(rows), len(SYNC_COLUMNS))
    made: dict[str, Any] = {name: pa.array(values, type=_type(name)) for name, values in columns.items()}
    made |= {name: counts[:, i] for i, name in enumerate(SYNC_COLUMNS)}
    return build("engine_steps", made)


def rollouts(recordings: Mapping[str, Recording]) -> pa.Table:
    """One row for each request of each repeat of each batch; times in seconds since its start."""
    found: list[dict[str, Any]] = []
    for name, repeat, recording, times in _repeats(recordings):
        numbers: dict[str, int] = {}
        ends_s = _ends_s(times)
        for request in recording["requests"]:
            group = numbers.setdefault(request["group"] or request["id"], len(numbers))
            result = recording["result"][request["id"]]
            before, first, last = (result[key] for key in ("added_before_step", "first_token_step", "finish_step"))
            aborted = result["finish_reason"] == "abort"
            found.append(
                {
                    "framework": "vllm",
                    "run_id": f"{name}/{repeat}",
                    "group_id": group,
                    "sample_id": request["id"],
                    "attempt": int(request["resume_of"] is not None),
                    "prompt_tokens": request["prompt_tokens"],
                    "output_tokens": result["output_tokens"],
                    "finish_reason": result["finish_reason"],
                    "is_truncated": result["finish_reason"] == "length",
                    "max_output_tokens": request["output_tokens"],
                    "t_submit_s": ends_s[before - 1] if before else 0.0,
                    "t_first_token_s": None if first is None else ends_s[first],
                    "t_end_s": None if last is None else ends_s[last],
                    "cached_tokens": result["cached_tokens"],
                    "num_preempted": result["num_preemptions"],
                    "status": "aborted" if aborted else "finished",
                }
            )
    names = found[0] if found else {"framework": None, "sample_id": None}
    return build("rollouts", {column: pa.array([row[column] for row in found], type=_type(column)) for column in names})


def _repeats(recordings: Mapping[str, Recording]) -> Iterator[tuple[str, int, Recording, Mapping[str, Any]]]:
    for name, recording in recordings.items():
        for repeat, times in enumerate(recording["repeats"]):
            yield name, repeat, recording, times


def _ends_s(times: Mapping[str, Any]) -> list[float]:
    """End of each step since the first began: what is done between two steps of an engine is not the engine's."""
    return [wall_ms / 1e3 for wall_ms in accumulate(times["wall_ms"])]


def _type(column: str) -> pa.DataType:
    if column.endswith("_s"):
        return pa.float64()
    if column.startswith("is_"):
        return pa.bool_()
    text = ("batch", "framework", "run_id", "sample_id", "finish_reason", "status")
    return pa.string() if column in text else pa.int64()

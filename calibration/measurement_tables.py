"""Recordings of a measurement as tables of `rollsim.traces.schema`: one row per engine step, and per request."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from rollsim.traces.schema import build

Recording = Mapping[str, Any]
_ASYNC = {
    "blocks_after_schedule": "blocks_peak", "blocks_after_update": "blocks_used", "running_after_update": "running",
    "waiting_after_update": "waiting",
}  # fmt: skip
_ONLY_ASYNC = ("n_requests", "running_after_schedule", "waiting_after_schedule")


def engine_steps(recordings: Mapping[str, Recording]) -> pa.Table:
    """One row for each step of each repeat of each batch."""
    names = ("batch", "repeat", "step", "t1_s", "wall_s", "cpu_s", "host_s")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    counts: dict[str, list[np.ndarray]] = {}
    for name, repeat, recording, times in _repeats(recordings):
        count = len(recording["rows"])
        columns["batch"] += [name] * count
        columns["repeat"] += [repeat] * count
        columns["step"] += range(count)
        columns["t1_s"] += _ends_s(times)
        columns["wall_s"] += [wall / 1e3 for wall in times["wall_ms"]]
        columns["cpu_s"] += [cpu / 1e3 for cpu in times["cpu_ms"]]
        columns["host_s"] += [None if host is None else host / 1e3 for host in times["host_wall_ms"]]
        for column, values in _counts(recording).items():
            counts.setdefault(column, []).append(values)
    made: dict[str, Any] = {name: pa.array(values, type=_type(name)) for name, values in columns.items()}
    return build("engine_steps", made | {name: np.concatenate(values) for name, values in counts.items()})


def scheduled(columns: Sequence[str], rows: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """Requests and tokens that each step scheduled, whichever columns a recording has."""
    at = {name: i for i, name in enumerate(columns)}
    names = [("n_requests",), ("tokens",)]
    if "n_requests" not in at:
        names = [("n_ctx_requests", "n_gen_requests"), ("prefill_tokens", "gen_tokens")]
    first, second = names
    return [(sum(row[at[name]] for name in first), sum(row[at[name]] for name in second)) for row in rows]


def _counts(recording: Recording) -> dict[str, np.ndarray]:
    """Columns of its steps in the table; an asynchronous recording has fewer, under names of its own."""
    rows = np.array(recording["rows"], dtype=np.int64).reshape(-1, len(recording["columns"]))
    own = {str(name): rows[:, i] for i, name in enumerate(recording["columns"])}
    requests, tokens = np.array(scheduled(recording["columns"], rows.tolist()), dtype=np.int64).reshape(-1, 2).T
    found = {_ASYNC.get(name, name): values for name, values in own.items() if name not in _ONLY_ASYNC}
    return found | {"requests": requests, "tokens": tokens}


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

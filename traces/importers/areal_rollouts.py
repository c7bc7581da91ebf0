"""AReaL's trajectories (lengths, versions, rewards) and its session tracer (times), joined on ``task_id``."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.fields import Fields
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.lines import json_lines
from rollsim.traces.importers.rows import Rows

TRAJECTORIES, SESSIONS = "trajectories", "sessions"
_STATUS = {
    "accepted": ("finished", "undecided"), "rejected": ("finished", "discarded"), "dropped": ("aborted", "discarded"),
    "failed": ("failed", "discarded"), "pending": ("in_flight", "undecided"),
}  # fmt: skip
_KINDS = {"generate": "generate", "reward": "reward", "toolcall": "tool"}
# Ranks that began further apart do not share a clock.
_SAME_CLOCK_S = 86_400.0
# A number of as many digits may be none of 64 bits.
_LONG_NUMBER = 18
_OF_SESSION = ("sample_id", "status", "fate", "discard_reason", "t_submit_s", "t_start_s", "t_end_s", "t_final_s",
               "gen_s", "tool_s", "reward_s")  # fmt: skip


def kind_of(file: LogFile) -> str | None:
    """Tell which of the two a file is."""
    if file.suffix != ".jsonl":
        return None
    if file.object_with("task_id", "seqlen", "prompt_len"):
        return TRAJECTORIES
    return SESSIONS if file.object_with("task_id", "session_id", "status") else None


def read_rollouts(trajectories: Sequence[LogFile], sessions: Sequence[LogFile], draft: Draft) -> None:
    """Read both, and join the n-th session of a task to its n-th sample, where it has as many of both."""
    lengths, lengths_task = _trajectories(trajectories, draft)
    times, times_task = _sessions(sessions, draft)
    codes = pa.chunked_array([pa.array(lengths_task, pa.string()), pa.array(times_task, pa.string())])
    encoded = codes.combine_chunks().dictionary_encode()
    unified = encoded.indices.to_numpy(zero_copy_only=False)
    left, right = unified[: len(lengths_task)], unified[len(lengths_task) :]
    names = encoded.dictionary.to_pylist()
    if all(name.isdecimal() and len(name) < _LONG_NUMBER for name in names):
        unified = np.array([int(name) for name in names], dtype=np.int64)[unified]
    lengths, times = _grouped(lengths, unified[: len(lengths_task)]), _grouped(times, unified[len(lengths_task) :])
    matched_left, matched_right = _pairs(left, right, draft)
    tables = []
    if len(matched_left):
        joined = lengths.take(pa.array(matched_left))
        with_times = times.take(pa.array(matched_right))
        for name in _OF_SESSION:
            joined = joined.set_column(joined.schema.get_field_index(name), joined.schema.field(name), with_times[name])
        tables.append(joined)
    for table, matched in ((lengths, matched_left), (times, matched_right)):
        rest = np.ones(len(table), bool)
        rest[matched] = False
        tables.append(table.filter(pa.array(rest)))
    draft.rollouts.replace(pa.concat_tables(tables).unify_dictionaries())


def _pairs(left: np.ndarray, right: np.ndarray, draft: Draft) -> tuple[np.ndarray, np.ndarray]:
    """Rows of trajectories and of sessions that are one; tasks with other counts of them stay apart, counted."""
    if not len(left) or not len(right):
        return np.empty(0, int), np.empty(0, int)
    size = int(max(left.max(), right.max())) + 1
    counts = [np.bincount(side, minlength=size) for side in (left, right)]
    equal = (counts[0] == counts[1]) & (counts[0] > 0)
    both = (counts[0] > 0) & (counts[1] > 0)
    if unequal := int((both & ~equal).sum()):
        what = "a task with other counts of sessions and samples; not joined"
        draft.damage.add(what, "task_id", allowed="one session a sample", count=unequal)
    draft.derived.append(f"{int(equal.sum()):,} tasks joined: the n-th session of a task is its n-th sample")
    order = [np.argsort(side, kind="stable") for side in (left, right)]
    chosen = [rows[equal[side[rows]]] for rows, side in zip(order, (left, right), strict=True)]
    return chosen[0], chosen[1]


def _trajectories(files: Sequence[LogFile], draft: Draft) -> tuple[pa.Table, list[str]]:
    rows, tasks = Rows("rollouts"), []
    for file in files:
        for place, row in json_lines(file, draft.damage, draft.done):
            fields = Fields(row, place, draft.damage)
            task = fields.text("task_id")
            if task is None:
                draft.damage.add("a row without task_id, which is left out", place)
                continue
            total, prompt = fields.count("seqlen"), fields.count("prompt_len")
            output = None if total is None or prompt is None else total - prompt
            if output is not None and output < 0:
                draft.damage.add("seqlen is less than prompt_len; no output length", place, total, f"at least {prompt}")
                output = None
            rows.add(
                {
                    "framework": "areal",
                    "sample_id": f"{task}/{fields.text('sample_idx') or 0}",
                    "prompt_tokens": prompt,
                    "output_tokens": output,
                    "version_start": fields.count("head_version"),
                    "version_end": fields.count("tail_version"),
                    "reward": fields.number("reward"),
                    "status": "finished",
                    "fate": "undecided",
                }
            )
            tasks.append(task)
    if len(rows):
        draft.derived.append("output tokens are seqlen less prompt_len: what tools added in later turns is in them")
    return rows.table(), tasks


def _sessions(files: Sequence[LogFile], draft: Draft) -> tuple[pa.Table, list[str]]:
    rows, tasks = Rows("rollouts"), []
    begins: dict[int, float] = {}
    for number, file in enumerate(files):
        for place, row in json_lines(file, draft.damage, draft.done):
            fields = Fields(row, place, draft.damage)
            task, session = fields.text("task_id"), fields.text("session_id")
            if task is None:
                draft.damage.add("a row without task_id, which is left out", place)
                continue
            status = row.get("status")
            if status not in _STATUS:
                draft.damage.add("an unknown status, not used", place, status, ", ".join(_STATUS))
            submit_s = fields.seconds("submit_ts")
            if submit_s is not None:
                begins[number] = min(submit_s, begins.get(number, submit_s))
            name = f"{task}:{session if session is not None else place}"
            phases = _phases(fields, name, draft)
            rows.add(
                {
                    "framework": "areal",
                    "sample_id": name,
                    "status": _STATUS.get(str(status), (None, None))[0],
                    "fate": _STATUS.get(str(status), (None, None))[1],
                    "discard_reason": fields.text("reason"),
                    "t_submit_s": submit_s,
                    "t_start_s": min((t0 for t0, _ in phases), default=None),
                    "t_end_s": max((t1 for _, t1 in phases), default=None),
                    "t_final_s": fields.seconds("finalized_ts"),
                    "gen_s": fields.seconds("generate_s"),
                    "tool_s": fields.seconds("toolcall_s"),
                    "reward_s": fields.seconds("reward_s"),
                }
            )
            tasks.append(task)
    if begins and max(begins.values()) - min(begins.values()) > _SAME_CLOCK_S:
        what = "ranks do not share a clock (they began more than a day apart): times across ranks cannot be compared"
        draft.damage.add(what, ", ".join(files[number].name for number in list(begins)[:3]))
    return rows.table(), tasks


def _phases(fields: Fields, name: str, draft: Draft) -> list[tuple[float, float]]:
    """Add a session's phases to the segments; return those of generation."""
    generated = []
    phases = fields.inner("phases")
    for phase, kind in _KINDS.items():
        for entry in phases.listed(phase):
            part = Fields(entry if isinstance(entry, dict) else {}, fields.place, draft.damage)
            begin, end = part.seconds("start_ts"), part.seconds("end_ts")
            if begin is None or end is None:
                continue
            if end < begin:
                draft.damage.add("a phase that ends before it starts; not used", fields.place, end, f"at least {begin}")
                continue
            draft.segments.add({"sample_id": name, "kind": kind, "t0_s": begin, "t1_s": end})
            if phase == "generate":
                generated.append((begin, end))
    return generated


def _grouped(table: pa.Table, group: np.ndarray) -> pa.Table:
    index = table.schema.get_field_index("group_id")
    return table.set_column(index, table.schema.field("group_id"), pa.array(group, pa.int64()))

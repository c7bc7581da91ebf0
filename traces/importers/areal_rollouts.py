"""AReaL's trajectories (lengths, versions, rewards) and its session tracer (times), joined on ``task_id``."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.fields import Fields
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.forms import Forms
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
_MOST_SAMPLES = 1 << 20
_EVAL = "eval-rollout"
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
    """Read both, and join the n-th session of a task, in the order of their numbers, to the task's sample n."""
    train = [file for file in trajectories if not file.name.startswith(_EVAL) and f"/{_EVAL}" not in file.name]
    if len(train) < len(trajectories):
        draft.found.append(f"{len(trajectories) - len(train)} files of evaluation are left out")
    lengths, lengths_task, sample = _trajectories(train, draft)
    times, times_task, session = _sessions(sessions, draft)
    encoded = pa.array([*lengths_task, *times_task], pa.string()).dictionary_encode()
    task = encoded.indices.to_numpy(zero_copy_only=False)
    names = encoded.dictionary.to_pylist()
    group = task
    if all(name.isdecimal() and len(name) < _LONG_NUMBER for name in names):
        group = np.array([int(name) for name in names], dtype=np.int64)[task]
    count = len(lengths_task)
    lengths, times = _grouped(lengths, group[:count]), _grouped(times, group[count:])
    left, right = _pairs(task[:count], np.array(sample, int), task[count:], np.array(session, int), draft)
    tables = []
    if len(left):
        joined, with_times = lengths.take(pa.array(left)), times.take(pa.array(right))
        for name in _OF_SESSION:
            joined = joined.set_column(joined.schema.get_field_index(name), joined.schema.field(name), with_times[name])
        tables.append(joined)
    for table, matched in ((lengths, left), (times, right)):
        rest = np.ones(len(table), bool)
        rest[matched] = False
        tables.append(table.filter(pa.array(rest)))
    draft.rollouts.replace(pa.concat_tables(tables).unify_dictionaries())


def _pairs(
    left_task: np.ndarray, sample: np.ndarray, right_task: np.ndarray, session: np.ndarray, draft: Draft
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of trajectories and of sessions that are one; tasks with too few sessions stay apart, counted."""
    if not len(left_task) or not len(right_task):
        return np.empty(0, int), np.empty(0, int)
    size = int(max(left_task.max(), right_task.max())) + 1
    sessions, samples = np.bincount(right_task, minlength=size), np.zeros(size, int)
    np.maximum.at(samples, left_task, sample + 1)
    short = (sessions < samples) & (sessions > 0)
    if short.any():
        what = "a task with fewer sessions than samples; not joined"
        draft.damage.add(what, "", allowed="a session a sample", count=int(short.sum()))
    order = np.lexsort((session, right_task))
    rank = np.empty(len(order), int)
    first = np.searchsorted(right_task[order], right_task[order])
    rank[order] = np.arange(len(order)) - first
    width = int(max(samples.max(), sessions.max())) + 1
    left_key = np.where(short[left_task], -1, left_task * width + sample)
    keys, left_first = np.unique(left_key, return_index=True)
    shared, of_left, right = np.intersect1d(keys, right_task * width + rank, return_indices=True)
    draft.derived.append(f"{len(shared):,} trajectories joined: session n of a task is its sample n")
    return left_first[of_left], right


def _trajectories(files: Sequence[LogFile], draft: Draft) -> tuple[pa.Table, list[str], list[int]]:
    rows, tasks, samples = Rows("rollouts"), [], []
    forms = Forms(("sample_idx", "seqlen", "prompt_len", "head_version", "tail_version", "reward"))
    for file in files:
        for place, row in json_lines(file, draft.damage, draft.done):
            forms.see(row, place)
            fields = Fields(row, place, draft.damage)
            task = fields.text("task_id")
            if task is None:
                draft.damage.add("a row without task_id, which is left out", place)
                continue
            sample = min(fields.count("sample_idx") or 0, _MOST_SAMPLES)
            total, prompt = fields.count("seqlen"), fields.count("prompt_len")
            output = None if total is None or prompt is None else total - prompt
            if output is not None and output < 0:
                draft.damage.add("seqlen is less than prompt_len; no output length", place, total, f"at least {prompt}")
                output = None
            rows.add(
                {
                    "framework": "areal",
                    "sample_id": f"{task}/{sample}",
                    "prompt_tokens": prompt,
                    "output_tokens": output,
                    "version_start": _version(fields, "head_version"),
                    "version_end": _version(fields, "tail_version"),
                    "reward": fields.number("reward"),
                    "status": "finished",
                    "fate": "undecided",
                }
            )
            tasks.append(task)
            samples.append(sample)
    forms.report(draft.damage)
    if len(rows):
        draft.derived.append("output tokens are those of the loss mask; prompt_len holds what tools added as well")
        draft.derived.append("versions are the oldest and newest of all samples of a task; -1, the prompts', is none")
    return rows.table(), tasks, samples


def _version(fields: Fields, name: str) -> int | None:
    """Return a version; AReaL gives prompts -1, which is none."""
    return None if fields.row.get(name) == -1 else fields.count(name)


def _sessions(files: Sequence[LogFile], draft: Draft) -> tuple[pa.Table, list[str], list[int]]:
    rows, tasks, sessions = Rows("rollouts"), [], []
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
            sessions.append(fields.count("session_id") or 0)
    if begins and max(begins.values()) - min(begins.values()) > _SAME_CLOCK_S:
        what = "ranks do not share a clock (they began more than a day apart): times across ranks cannot be compared"
        draft.damage.add(what, ", ".join(files[number].name for number in list(begins)[:3]))
    return rows.table(), tasks, sessions


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

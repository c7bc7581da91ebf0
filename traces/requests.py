"""A request trace: when each request arrives, how long its prompt is and how much it generates. No text.

A trace is Parquet, CSV or JSON lines with a column each for the prompt and output tokens and, optionally, the arrival,
group, id, priority, reward and how it ended; `rollsim.traces.request_columns.ALIASES` lists the names under which each
is known. The ``rollouts`` table of a run is one.
"""

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.examples import example_path
from rollsim.traces.request_columns import (
    REQUIRED,
    RowFaults,
    match,
    missing,
    misspelt,
    numbers,
    plain_array,
    times_s,
    truths,
    unknown,
)
from rollsim.traces.request_files import RawTrace, read_file

MAX_TOKENS = 2**31 - 1
_WHOLE = "a whole number from {low} to {high}"
_EXACT = 2**53
_CLOCK_TIME_S = 1e8
ROLLOUTS = "rollouts.parquet"
_NOT_ENDED = ("in_flight", "pending", "running", "aborted", "failed")
# At this distance from the first arrival the clock still tells 15 ns apart.
MAX_SPAN_S = 1e8
_LATEST_CLOCK_TIME_S = 1e11


@dataclass(frozen=True)
class RequestTrace:
    """Requests in the order of their arrival; requests that arrive together stay in the order of the file.

    Parameters
    ----------
    path
        Where it was read from.
    ids
        Name of each request, or None if the trace has none.
    arrival_s
        Arrival [s], float64, ascending.
    prompt_tokens, output_tokens
        Lengths [tokens], int64, at least 1.
    group
        Number of the group (responses to one prompt), int64, -1 for none.
    priority
        Priority, int64; lower is served first under a priority policy, 0 by default.
    rows
        1-based row, or line of the file, where each request stands, int64.
    unit
        What `rows` counts: ``row`` or ``line``.
    content_hash
        SHA-256 of the content: the same for the same requests in another file format.
    notes, arrival_notes
        What a user should know about how the file was read; what concerns the arrivals apart.
    truncated
        Whether each output was cut at a limit, bool, False where there is no value; None if the trace does not say.
    reward
        Reward of each, float64, NaN where there is no value; None if the trace has none.
    unfinished
        Whether its generation had not ended, or was aborted or failed, so that it could have become longer, bool; None
        if the trace does not say.
    extra
        Whether it was drawn in addition to the recorded responses of its group, bool; None if the trace does not say.
    unused_columns
        Columns of the file that mean nothing here.
    """

    path: str
    ids: pa.StringArray | None
    arrival_s: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    group: np.ndarray
    priority: np.ndarray
    rows: np.ndarray
    unit: str
    content_hash: str
    notes: tuple[str, ...]
    truncated: np.ndarray | None = None
    reward: np.ndarray | None = None
    unfinished: np.ndarray | None = None
    extra: np.ndarray | None = None
    unused_columns: tuple[str, ...] = ()
    arrival_notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.arrival_s)

    def place(self, index: int) -> str:
        """Say where a request stands in the file, with its id if it has one; for error messages."""
        place = f"{self.unit} {self.rows[index]}"
        return place if self.ids is None else f"{place}, id {self.ids[index].as_py()!r}"

    def select(self, chosen: np.ndarray) -> "RequestTrace":
        """Return the trace of some of the requests, by index or by a mask, in their order here."""
        indices = np.arange(len(self))[chosen]
        names = ("arrival_s", "prompt_tokens", "output_tokens", "group", "priority", "rows")
        columns = {name: getattr(self, name)[indices] for name in names}
        columns |= {name: values[indices] for name in _OUTCOMES if (values := getattr(self, name)) is not None}
        ids = None if self.ids is None else self.ids.take(pa.array(indices))
        return replace(self, ids=ids, content_hash=_hash(ids, columns), **columns)


def trace_file(path: str | os.PathLike[str]) -> Path:
    """Return the file of a trace: its own, the table of a run's folder, or that of ``example:NAME``.

    Raises
    ------
    BadInput
        It is a folder without that table.
    """
    text = os.fspath(path)
    file = example_path(text.removeprefix("example:")) if text.startswith("example:") else Path(text)
    if not file.is_dir():
        return file
    file /= ROLLOUTS
    if not file.is_file():
        allowed = f"a file, or the folder of a run, which holds {ROLLOUTS}"
        raise BadInput(Fault(text, allowed=allowed, message="is a folder"))
    return file


def read_requests(path: str | os.PathLike[str]) -> RequestTrace:
    """Read a request trace.

    Parameters
    ----------
    path
        A file, the folder of a run, or ``example:NAME`` for one of `rollsim.traces.examples`.

    Raises
    ------
    BadInput
        Names every fault of the file, with rows or lines.
    """
    text = os.fspath(path)
    raw = read_file(trace_file(path))
    unfit = raw.faults + missing(text, raw.names) + misspelt(text, raw.names)
    columns = match(raw.names)
    faults = RowFaults(text, raw.place_of, raw.unit)
    notes = list(raw.notes)
    for meaning, names in columns.items():
        if len(names) > 1:
            notes.append(f"{meaning} is read from column {names[0]!r}; {', '.join(map(repr, names[1:]))} not used")
    chosen = {meaning: (names[0], raw.columns[names[0]]) for meaning, names in columns.items() if raw.columns}
    count = len(next(iter(chosen.values()))[1]) if chosen else 0
    if not count:
        raise BadInput(unfit or [Fault(text, message="holds no request", allowed="at least one")])
    for meaning in ("arrival", "group", "id", "priority", *_OUTCOMES):
        if meaning in chosen and chosen[meaning][1].null_count == count:
            notes.append(f"column {chosen[meaning][0]!r} is empty and not used")
            del chosen[meaning]
    prompt_tokens, output_tokens = (
        _whole(*chosen[name], faults, low=1, high=MAX_TOKENS) if name in chosen else np.ones(count, int)
        for name in REQUIRED
    )
    arrival_notes: list[str] = []
    arrival_s = _arrivals(chosen, raw.names, count, faults, arrival_notes)
    priority = _whole(*chosen["priority"], faults, -_EXACT, _EXACT) if "priority" in chosen else np.zeros(count, int)
    group = _groups(*chosen["group"], faults) if "group" in chosen else np.full(count, -1)
    ids = _ids(*chosen["id"], faults) if "id" in chosen else None
    outcomes = {name: _OUTCOMES[name](*chosen[name], faults) for name in _OUTCOMES if name in chosen}
    if not unfit and not faults.faults:
        _check_groups(group, prompt_tokens, chosen, faults)
    if unfit or faults.faults:
        raise BadInput(unfit + faults.faults)
    order = np.argsort(arrival_s, kind="stable")
    moved = int((order != np.arange(count)).sum())
    if moved:
        arrival_notes.append(f"requests were not in the order of arrival; {moved} of {count} were sorted into place")
    values = {
        "arrival_s": arrival_s[order],
        "prompt_tokens": prompt_tokens[order],
        "output_tokens": output_tokens[order],
        "group": group[order],
        "priority": priority[order],
        "rows": _rows(raw, count)[order],
        **{name: values[order] for name, values in outcomes.items()},
    }
    ids = ids if ids is None else ids.take(pa.array(order))
    return RequestTrace(
        text,
        ids,
        unit=raw.unit,
        content_hash=_hash(ids, values),
        notes=tuple(notes),
        arrival_notes=tuple(arrival_notes),
        unused_columns=tuple(unknown(raw.names)),
        **values,
    )


def _whole(column: str, array: pa.Array, faults: RowFaults, low: int, high: int) -> np.ndarray:
    """Return a column as int64, having noted every value that is not a whole number in the range."""
    values, absent, malformed = numbers(array)
    allowed = _WHOLE.format(low=low, high=high)
    usable = ~(absent | malformed)
    fraction = usable & (values != np.floor(values))
    faults.add(absent, column, "no value", allowed)
    faults.add(malformed, column, "not a number", allowed, array)
    faults.add(fraction, column, "not a whole number", allowed, array)
    if low == 1:
        faults.add(usable & (values == 0), column, "zero", allowed, array)
        faults.add(usable & (values < 0), column, "negative", allowed, array)
    else:
        faults.add(usable & (values < low), column, "too small", allowed, array)
    faults.add(usable & (values > high), column, "too large", allowed, array)
    return np.where(usable & (np.abs(values) <= _EXACT), values, 0).astype(np.int64)


def _flags(column: str, array: pa.Array, faults: RowFaults) -> np.ndarray:
    """Return a column as bool, having noted every value that is neither true nor false."""
    values, absent, malformed = numbers(truths(array))
    faults.add(malformed | (~absent & ~np.isin(values, (0, 1))), column, "not a flag", "true, false, 1 or 0", array)
    return values == 1


def _rewards(column: str, array: pa.Array, faults: RowFaults) -> np.ndarray:
    """Return a column as float64 with NaN for no value, having noted every value that is not a finite number."""
    values, _, malformed = numbers(truths(array))
    faults.add(malformed | np.isinf(values), column, "not a finite number", "a number, true, false or nothing", array)
    return values


def _unfinished(column: str, array: pa.Array, faults: RowFaults) -> np.ndarray:
    """Return whether each status is one of those whose length is not final; an unknown one counts as ended."""
    array = plain_array(array)
    if pa.types.is_nested(array.type):
        faults.add(array.is_valid().to_numpy(zero_copy_only=False), column, "not a name", "a text or number", array)
        return np.zeros(len(array), bool)
    names = pc.utf8_lower(pc.utf8_trim_whitespace(array.cast(pa.string())))
    return pc.is_in(names, pa.array(_NOT_ENDED)).to_numpy(zero_copy_only=False)


def _arrivals(
    chosen: dict[str, tuple[str, pa.Array]], names: list[str], count: int, faults: RowFaults, notes: list[str]
) -> np.ndarray:
    """Return arrivals in seconds, from dates, milliseconds or seconds."""
    if "arrival" not in chosen:
        notes.append("no arrival column; all requests arrive at 0 s")
        return np.zeros(count)
    column, array = chosen["arrival"]
    dates = times_s(array)
    if dates is not None:
        seconds, absent, malformed = dates
        notes.append(f"arrivals are the dates of column {column!r}, counted from the earliest")
        faults.add(absent, column, "no value", "a date and time")
        faults.add(malformed, column, "not a date and time", "2024-05-10 00:00:00.009930, also with T and zone", array)
        faults.add(seconds > MAX_SPAN_S, column, "too late", f"up to {MAX_SPAN_S:,.0f} s after the earliest", array)
        return seconds
    values, absent, malformed = numbers(array)
    usable = ~(absent | malformed)
    finite = usable & np.isfinite(values)
    faults.add(absent, column, "no value", "seconds, at least 0")
    faults.add(malformed, column, "not a number", "seconds, or a date and time like 2024-05-10 00:00:00", array)
    faults.add(usable & ~finite, column, "not finite", "seconds, at least 0", array)
    faults.add(finite & (values < 0), column, "negative", "seconds, at least 0", array)
    values = np.where(finite, values, 0.0)
    plain = column.strip().lower()
    # The Mooncake traces count whole milliseconds in a column `timestamp` and name the lengths input/output_length.
    if plain.endswith("_ms") or (plain == "timestamp" and {"input_length", "output_length"} <= set(names)):
        notes.append(f"arrivals are read from column {column!r} as milliseconds")
        values = values / 1e3
    if finite.any() and values[finite].min() >= _CLOCK_TIME_S:
        notes.append(f"column {column!r} holds clock times; arrivals are counted from the earliest")
        no_clock = values > _LATEST_CLOCK_TIME_S
        faults.add(no_clock, column, "too large for a clock time", "seconds; milliseconds in a column *_ms", array)
        values = np.where(finite & ~no_clock, values - values[finite].min(), 0.0)
    late = values - values[finite].min(initial=np.inf) > MAX_SPAN_S
    faults.add(late, column, "too late", f"up to {MAX_SPAN_S:,.0f} s after the earliest", array)
    return values


def _groups(column: str, array: pa.Array, faults: RowFaults) -> np.ndarray:
    """Return group numbers; unless all labels are numbers, they are numbered in the order of appearance."""
    array = plain_array(array)
    allowed = "a whole number from 0, or a name; -1 or nothing for none"
    if pa.types.is_nested(array.type):
        faults.add(array.is_valid().to_numpy(zero_copy_only=False), column, "not a number or name", allowed, array)
        return np.full(len(array), -1)
    values, absent, malformed = numbers(array)
    number = ~absent & ~malformed
    faults.add(number & (values < -1), column, "negative", allowed, array)
    whole = np.isfinite(values) & (values == np.floor(values))
    faults.add(number & ~whole, column, "not a whole number", allowed, array)
    none = absent | (values == -1)
    if (none | (number & (np.abs(values) <= _EXACT))).all():
        return np.where(none, -1, values).astype(np.int64)
    named = pc.if_else(pa.array(none), pa.scalar(None, array.type), array)  # pyright: ignore[reportAttributeAccessIssue]
    codes = named.dictionary_encode().indices
    return pc.fill_null(codes, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def _ids(column: str, array: pa.Array, faults: RowFaults) -> pa.StringArray:
    array = plain_array(array)
    if pa.types.is_nested(array.type):
        faults.add(np.ones(len(array), bool), column, "not a name", "a text or number", array)
        return pa.nulls(len(array), pa.string())
    try:
        ids = array.cast(pa.string())
    except pa.ArrowInvalid:
        faults.add(np.ones(len(array), bool), column, "not a name", "a text or number")
        return pa.nulls(len(array), pa.string())
    faults.add(
        ids.is_null().to_numpy(zero_copy_only=False), column, "no value", "an id in every row, or no such column"
    )
    codes = ids.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    _, first, times = np.unique(codes, return_index=True, return_counts=True)
    if len(first) < len(codes):
        repeated = np.isin(codes, codes[first[times > 1]]) & (codes >= 0)
        faults.add(repeated, column, "stands more than once", "ids that differ", array)
    return ids


def _check_groups(
    group: np.ndarray, prompt_tokens: np.ndarray, chosen: dict[str, tuple[str, pa.Array]], faults: RowFaults
) -> None:
    """Note members of a group whose prompt is not as long as that of its first member."""
    groups, first, member_of = np.unique(group, return_index=True, return_inverse=True)
    differs = (prompt_tokens != prompt_tokens[first][member_of]) & (group >= 0)
    if differs.any():
        column, array = chosen["prompt_tokens"]
        count = len(np.unique(member_of[differs]))
        what = f"prompt not as long as the first of its group ({count} of {(groups >= 0).sum()} groups)"
        faults.add(differs, column, what, "one length in a group: its members are responses to one prompt", array)


def _rows(raw: RawTrace, count: int) -> np.ndarray:
    return np.asarray(raw.place_of(range(count)), dtype=np.int64)


def _hash(ids: pa.StringArray | None, columns: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in ("arrival_s", "prompt_tokens", "output_tokens", "group", "priority", *_OUTCOMES):
        if name in columns:
            digest.update(columns[name].tobytes())
    if ids is not None:
        digest.update("\n".join(ids.to_pylist()).encode())
    return digest.hexdigest()


# Columns that say how a response ended, and how each is read; a trace need not have them.
_OUTCOMES = {"truncated": _flags, "reward": _rewards, "unfinished": _unfinished, "extra": _flags}

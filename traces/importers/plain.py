"""Any table of requests or responses, in CSV, JSON lines or Parquet: Azure's and Mooncake's traces, and your own.

Columns are known by the names of `rollsim.traces.request_columns.ALIASES`, by our own names, or by a map that the user
gives. Files of any length are read in pieces.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from rollsim.traces.errors import BadInput, Fault, closest
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish
from rollsim.traces.importers.pieces import SUFFIXES, Piece, pieces, schema_names
from rollsim.traces.request_columns import REQUIRED, match, moments_us, numbers, plain_array, truths, unknown
from rollsim.traces.schema import ROLLOUTS

TABLE = "table"
_MEANS = {
    "arrival": "t_submit_s", "prompt_tokens": "prompt_tokens", "output_tokens": "output_tokens", "group": "group_id",
    "id": "sample_id", "truncated": "is_truncated", "reward": "reward", "unfinished": "status", "extra": "is_extra",
}  # fmt: skip
_STATUS = {"aborted": "aborted", "failed": "failed", "in_flight": "in_flight", "pending": "in_flight",
           "running": "in_flight"}  # fmt: skip
_MAX_COUNT = 2**31 - 1


def columns_given(words: Sequence[str]) -> dict[str, str]:
    """Return the map that ``OURS=THEIRS`` words make: a column of ``rollouts``, or what it means, to one of a file.

    Raises
    ------
    BadInput
        Names every word that is none.
    """
    faults, given = [], {}
    for word in words:
        ours, equals, theirs = word.partition("=")
        name = _MEANS.get(ours, ours)
        if not equals or not theirs:
            faults.append(Fault("--columns", given=word, allowed="OURS=THEIRS, as prompt_tokens=n_in"))
        elif name not in ROLLOUTS.names:
            known = [*_MEANS, *ROLLOUTS.names]
            faults.append(Fault("--columns", given=ours, allowed=", ".join(_MEANS), closest=closest(ours, known)))
        else:
            given[name] = theirs
    if faults:
        raise BadInput(faults)
    return given


def _claims(file: LogFile) -> str | None:
    if file.suffix not in SUFFIXES:
        return None
    names = file.header or tuple(file.keys) or tuple(schema_names(file))
    return TABLE if {"prompt_tokens", "output_tokens"} & match(list(names)).keys() else None


def claims_any(file: LogFile) -> str | None:
    """Say that a file is a table: for one whose columns the user maps."""
    return TABLE if file.suffix in SUFFIXES else None


def _read(files: Files, draft: Draft) -> None:
    for file in files.get(TABLE, ()):
        _Reader(file, draft).read()


class _Reader:
    """Reads one file, with the meaning of its columns."""

    def __init__(self, file: LogFile, draft: Draft) -> None:
        self.file, self.draft = file, draft
        self.names: list[str] = []
        self.column_of: dict[str, str] = {}
        self.in_ms = False
        self.groups: dict[str, int] = {}

    def read(self) -> None:
        """Read it piece by piece."""
        for piece in pieces(self.file, self.draft):
            if piece.names != self.names:
                self._head(piece.names)
            columns: dict[str, pa.Array] = {}
            for ours, theirs in self.column_of.items():
                array = piece.columns.get(theirs)
                if array is not None:
                    columns[ours] = _READ.get(ours, _Reader._number)(self, ours, plain_array(array), piece)
            if not columns:
                continue
            self.draft.rollouts.add_columns(columns, {} if "framework" in columns else {"framework": "table"})

    def _head(self, names: list[str]) -> None:
        if self.names and set(names) != set(self.names):
            what = "columns differ within the file (mixed versions); each piece is read by its own"
            self.draft.damage.add(what, self.file.name, ", ".join(sorted(set(names) ^ set(self.names))[:4]))
        self.names = names
        given = self.draft.options.columns
        found = {_MEANS[meaning]: columns[0] for meaning, columns in match(names).items() if meaning in _MEANS}
        found |= {name: name for name in names if name in ROLLOUTS.names}
        self.column_of = found | {ours: theirs for ours, theirs in given.items() if theirs in names}
        absent = [theirs for theirs in given.values() if theirs not in names]
        if absent:
            raise BadInput(
                Fault(self.file.name, "columns", theirs, ", ".join(names[:20]), closest(theirs, names), "no column")
                for theirs in absent
            )
        arrival = self.column_of.get("t_submit_s", "").strip().lower()
        # The Mooncake traces count whole milliseconds in `timestamp` and name the lengths input/output_length.
        mooncake = arrival == "timestamp" and {"input_length", "output_length"} <= set(names)
        self.in_ms = arrival.endswith("_ms") or mooncake
        if self.in_ms:
            self._say(f"arrivals are read from {arrival!r} as milliseconds")
        unused = [name for name in unknown(names) if name not in self.column_of.values()]
        if unused:
            self._say(f"columns not used: {', '.join(unused[:10])}")

    def _say(self, line: str) -> None:
        if line not in self.draft.derived:
            self.draft.derived.append(line)

    def _refuse(self, bad: np.ndarray, what: str, allowed: str, array: pa.Array, piece: Piece) -> None:
        indices = np.flatnonzero(bad)
        for index in indices[:5].tolist():
            self.draft.damage.add(what, piece.place(index), array[index].as_py(), allowed)
        if len(indices) > 5:
            self.draft.damage.add(what, "", count=len(indices) - 5)

    def _number(self, ours: str, array: pa.Array, piece: Piece) -> pa.Array:
        field = ROLLOUTS.field(ours)
        if pa.types.is_string(field.type) or pa.types.is_dictionary(field.type):
            return self._text(ours, array, piece)
        values, absent, malformed = numbers(array)
        theirs = self.column_of[ours]
        malformed |= np.isnan(values) & array.is_valid().to_numpy(zero_copy_only=False)
        if ours in REQUIRED:
            self._refuse(absent & ~malformed, f"{theirs} has no value", "a length in each row", array, piece)
        self._refuse(malformed, f"{theirs} is not a number; the value is not used", "a number", array, piece)
        usable = ~(absent | malformed)
        if pa.types.is_integer(field.type):
            high = _MAX_COUNT if field.type == pa.int32() else 2**53
            low = 0 if ours.endswith("_tokens") else -high
            wrong = usable & ~((values == np.floor(values)) & (values >= low) & (values <= high))
            allowed = f"a whole number from {low} to {high}"
        else:
            wrong = usable & ~np.isfinite(values)
            allowed = "a finite number"
            if ours.endswith("_s"):
                wrong |= usable & (values < 0)
                allowed = "seconds, at least 0"
        self._refuse(wrong, f"{theirs} is out of range; the value is not used", allowed, array, piece)
        return _masked(values, usable & ~wrong, field.type)

    def _arrival(self, ours: str, array: pa.Array, piece: Piece) -> pa.Array:
        dates = moments_us(array)
        if dates is None:
            seconds = self._number(ours, array, piece)
            return pa.array(seconds.to_numpy(zero_copy_only=False) / 1e3, from_pandas=True) if self.in_ms else seconds
        ticks, absent, malformed = dates
        self._say(f"arrivals are the dates of {self.column_of[ours]!r}")
        self._refuse(malformed, f"{self.column_of[ours]} is no date; the value is not used", "a date", array, piece)
        return _masked(ticks / 1e6, ~(absent | malformed), pa.float64())

    def _flag(self, ours: str, array: pa.Array, piece: Piece) -> pa.Array:
        values, absent, malformed = numbers(truths(array))
        wrong = malformed | (~absent & ~np.isin(values, (0, 1)))
        allowed = "true, false, 1 or 0"
        self._refuse(wrong, f"{self.column_of[ours]} is no flag; the value is not used", allowed, array, piece)
        return pa.array(values == 1, mask=wrong | absent)

    def _reward(self, ours: str, array: pa.Array, piece: Piece) -> pa.Array:
        return self._number(ours, truths(array), piece)

    def _text(self, ours: str, array: pa.Array, piece: Piece) -> pa.Array:
        if pa.types.is_nested(array.type):
            what = f"{self.column_of[ours]} is no name; the value is not used"
            self._refuse(array.is_valid().to_numpy(zero_copy_only=False), what, "a text or number", array, piece)
            return pa.nulls(len(array), pa.string())
        return array.cast(pa.string())

    def _labels(self, ours: str, array: pa.Array, piece: Piece) -> pa.Array:
        """Labels of a closed vocabulary; another one is counted."""
        allowed = ROLLOUTS.field(ours).metadata.get(b"allowed", b"").decode().split()
        encoded = self._text(ours, array, piece).dictionary_encode()
        if ours == "status":
            known = {name: _STATUS.get(name.strip().lower(), "finished") for name in encoded.dictionary.to_pylist()}
        else:
            known = {name: name if name in allowed or not allowed else None for name in encoded.dictionary.to_pylist()}
        wrong = pa.array([known[name] is None for name in encoded.dictionary.to_pylist()], pa.bool_())
        bad = wrong.take(encoded.indices).fill_null(False).to_numpy(zero_copy_only=False)
        self._refuse(bad, f"{ours} is unknown; the value is not used", ", ".join(allowed), array, piece)
        return pa.array([known[name] for name in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)

    def _group(self, ours: str, array: pa.Array, piece: Piece) -> pa.Array:
        """Numbers as they are if the first ones are; else names, numbered in the order of appearance."""
        text = self._text(ours, array, piece).dictionary_encode()
        names = text.dictionary.to_pylist()
        if not self.groups and all(name.lstrip("-").isdecimal() and len(name) < 18 for name in names):
            values, absent, malformed = numbers(array)
            return _masked(values, ~(absent | malformed | (values < 0)), pa.int64())
        codes = [self.groups.setdefault(name, len(self.groups)) for name in names]
        return pa.array(codes, pa.int64()).take(text.indices)


def _masked(values: np.ndarray, usable: np.ndarray, kind: pa.DataType) -> pa.Array:
    filled = np.where(usable, values, 0)
    if pa.types.is_integer(kind):
        filled = filled.astype(np.int64)
    return pa.array(filled, mask=~usable).cast(kind)


_READ: dict[str, Callable[[_Reader, str, pa.Array, Piece], pa.Array]] = {
    "t_submit_s": _Reader._arrival, "group_id": _Reader._group, "sample_id": _Reader._text,
    "is_truncated": _Reader._flag, "is_extra": _Reader._flag, "reward": _Reader._reward,
    "status": _Reader._labels, "fate": _Reader._labels, "finish_reason": _Reader._labels,
}  # fmt: skip

IMPORTER = Importer(
    "table",
    ("a table (.csv, .jsonl, .parquet, .gz) with prompt and output tokens, as of Azure or Mooncake",),
    _claims,
    _read,
    (
        Wish("rollouts.t_submit_s", "arrivals", "a column arrival_s (seconds), *_ms, or dates; --columns arrival=NAME"),
        Wish("rollouts.group_id", "groups of responses to one prompt", "a column group_id; --columns group=NAME"),
        Wish("rollouts.is_truncated", "which responses were cut at a limit", "a column is_truncated"),
        Wish("rollouts.reward", "rewards", "a column reward"),
        Wish("rollouts.t_end_s", "when responses ended", "a column t_end_s (seconds on the clock of the arrivals)"),
    ),
)

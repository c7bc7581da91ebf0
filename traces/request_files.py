"""Reads the file of a request trace into Arrow columns: Parquet, CSV or JSON lines, the latter two also gzipped."""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json
import pyarrow.parquet as pq

from rollsim.traces.errors import BadInput, Fault, closest
from rollsim.traces.request_columns import EXAMPLES_SHOWN, describe, match

SUFFIXES = (".parquet", ".csv", ".jsonl", ".csv.gz", ".jsonl.gz")
_BOM = b"\xef\xbb\xbf"
_NO_VALUE = ["", "nan", "NaN", "null", "None", "NA", "N/A"]


@dataclass
class RawTrace:
    """Columns of a trace as they stand in its file.

    Parameters
    ----------
    names
        All column names.
    columns
        Those columns that a trace can use, by name.
    faults
        What is wrong with the file's shape; the rows concerned are not in the columns.
    notes
        What a user should know about how it was read.
    text
        The file's content if it is made of lines, else None.
    skipped
        Numbers of the lines that are not in the columns: header and faulty lines.
    """

    names: list[str]
    columns: dict[str, pa.Array]
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    text: bytes | None = None
    skipped: frozenset[int] = frozenset()

    @property
    def unit(self) -> str:
        """What `place_of` counts."""
        return "row" if self.text is None else "line"

    def place_of(self, indices: Sequence[int]) -> list[int]:
        """Return the 1-based rows, or lines of the file, at which rows of the columns stand."""
        return [index + 1 if self.text is None else self._lines[index] for index in indices]

    @cached_property
    def _lines(self) -> list[int]:
        assert self.text is not None
        lines = enumerate(self.text.split(b"\n"), start=1)
        return [number for number, line in lines if line.strip() and number not in self.skipped]


def read_file(path: Path) -> RawTrace:
    """Read a trace's file.

    Raises
    ------
    BadInput
        If it cannot be read at all. Faults of single rows are in the result.
    """
    name = path.name.lower()
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), None)
    if suffix is None:
        near = closest("".join(path.suffixes[-2:]), SUFFIXES)
        given = path.suffix or path.name
        raise BadInput(Fault(str(path), "suffix", given, ", ".join(SUFFIXES), near, "not a kind of trace that is read"))
    try:
        data = path.read_bytes()
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise BadInput(Fault(str(path), message=f"cannot be read: {error.strerror}")) from error
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        near = closest(path.name, beside)
        raise BadInput(Fault(str(path), message="there is no such file", closest=near)) from error
    if suffix.endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput(Fault(str(path), message=f"damaged or cut off gzip: {error}")) from error
    if not data.strip():
        raise BadInput(Fault(str(path), message="is empty", allowed="at least one request"))
    if suffix == ".parquet":
        return _read_parquet(str(path), data)
    text = _decoded(str(path), data)
    return _read_csv(str(path), text) if suffix.startswith(".csv") else _read_jsonl(str(path), text)


def _read_parquet(file: str, data: bytes) -> RawTrace:
    try:
        parquet = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        names = parquet.schema_arrow.names
        table = parquet.read(columns=_usable(names))
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(Fault(file, message=f"damaged or not Parquet: {_first_line(error)}")) from error
    return RawTrace(names, _columns(table))


def _read_csv(file: str, text: bytes) -> RawTrace:
    text = re.sub(rb"(?m)^[ \t]+$", b"", text)  # Arrow passes over empty lines, but not over blanks
    header_line = next(number for number, line in enumerate(text.split(b"\n"), start=1) if line.strip())
    body = text.split(b"\n", header_line)[-1] if text.count(b"\n") >= header_line else b""
    names = next(csv.reader([text.split(b"\n")[header_line - 1].decode()], skipinitialspace=True), [])
    raw = RawTrace([name.strip() for name in names], {}, text=text, skipped=frozenset({header_line}))
    if not _usable(raw.names):
        _check_separator(file, header_line, ",".join(names))
    twice = sorted({name for name in _usable(raw.names) if raw.names.count(name) > 1})
    if twice:
        raise BadInput(Fault(file, "columns", name, "each column once", message="stands twice") for name in twice)
    if not body.strip() or not _usable(raw.names):
        return raw
    bad_rows: list[arrow_csv.InvalidRow] = []
    positions = {name: str(raw.names.index(name)) for name in _usable(raw.names)}
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(body),
            arrow_csv.ReadOptions(
                use_threads=False,
                block_size=min(len(body) + 1, 2**31 - 1),
                column_names=[str(position) for position in range(len(names))],
            ),
            arrow_csv.ParseOptions(invalid_row_handler=lambda row: (bad_rows.append(row), "skip")[1]),
            arrow_csv.ConvertOptions(
                include_columns=list(positions.values()),
                column_types={position: pa.string() for position in positions.values()},
                null_values=_NO_VALUE,
                strings_can_be_null=True,
            ),
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(Fault(file, message=f"not CSV: {_first_line(error)}")) from error
    raw.columns = {name: table.column(position).combine_chunks() for name, position in positions.items()}
    if bad_rows:
        numbers = [raw.place_of([row.number - 1])[0] for row in bad_rows]
        raw = RawTrace(raw.names, raw.columns, text=text, skipped=raw.skipped | set(numbers))
        shown = describe(numbers[:EXAMPLES_SHOWN], "line", len(numbers))
        given = f"{bad_rows[0].actual_columns} in line {numbers[0]}"
        allowed = f"{bad_rows[0].expected_columns}, as in the header"
        raw.faults.append(Fault(file, shown, given, allowed, message="wrong number of fields"))
    if not text.endswith(b"\n"):
        raw.notes.append("the last line has no line end; check that the file was not cut off")
    return raw


def _check_separator(file: str, line: int, header: str) -> None:
    """Refuse a header that makes sense with another separator than a comma."""
    for separator, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if separator in header and _usable([name.strip() for name in header.split(separator)]):
            message = f"fields are separated by {word}"
            raise BadInput(Fault(file, f"line {line}", header[:60], "fields separated by commas", message=message))


def _read_jsonl(file: str, text: bytes) -> RawTrace:
    options = arrow_json.ReadOptions(use_threads=False, block_size=min(len(text) + 1, 2**31 - 1))
    try:
        table = arrow_json.read_json(pa.BufferReader(text), options)
    except (pa.ArrowException, OSError, ValueError):
        return _read_jsonl_by_line(file, text)
    if (
        table.num_rows != text.count(b"\n") + (not text.endswith(b"\n"))
        or len(set(table.column_names)) < table.num_columns
    ):
        return _read_jsonl_by_line(file, text)
    return RawTrace(table.column_names, _columns(table.select(_usable(table.column_names))), text=text)


def _read_jsonl_by_line(file: str, text: bytes) -> RawTrace:
    """Read line by line what Arrow's reader refused: to say where the fault is, or since types differ between rows."""
    rows: list[dict[str, object]] = []
    refused: dict[str, list[tuple[int, str]]] = {}
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            refused.setdefault("not JSON", []).append((number, _first_line(error)))
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            refused.setdefault("not a JSON object", []).append((number, type(row).__name__))
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _array_of_any([row.get(name) for row in rows]) for name in _usable(names)}
    skipped = frozenset(number for faults in refused.values() for number, _ in faults)
    raw = RawTrace(names, columns, text=text, skipped=skipped)
    for message, places in refused.items():
        numbers = [number for number, _ in places]
        cut_off = numbers[-1] == text.count(b"\n") + 1 and not text.endswith(b"\n")
        shown = describe(numbers[:EXAMPLES_SHOWN], "line", len(numbers))
        what = message + (" (the last line is cut off)" if cut_off else "")
        raw.faults.append(Fault(file, shown, places[0][1], "one JSON object in each line", message=what))
    return raw


def _array_of_any(values: list[object]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    if bool in kinds and len(kinds) > 1:  # Arrow would take true among numbers as 1
        return pa.array([_text_of_any(value) for value in values], pa.string())
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([_text_of_any(value) for value in values], pa.string())


def _text_of_any(value: object) -> str | None:
    """Return text as it is, anything else as JSON; half a surrogate pair, which JSON can escape, is no text."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _decoded(file: str, data: bytes) -> bytes:
    """Return the text with plain line ends and no byte-order mark, or say which lines are not UTF-8."""
    data = data.removeprefix(_BOM)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        bad = [number for number, line in enumerate(io.BytesIO(data), start=1) if not _is_utf8(line)]
        shown = describe(bad[:EXAMPLES_SHOWN], "line", len(bad))
        raise BadInput(Fault(file, shown, message="not UTF-8", allowed="text in UTF-8")) from None
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _usable(names: Sequence[str]) -> list[str]:
    return [name for columns in match(names).values() for name in columns]


def _columns(table: pa.Table) -> dict[str, pa.Array]:
    combined = table.combine_chunks()
    return {
        name: combined.column(name).chunk(0) if combined.num_rows else pa.nulls(0) for name in combined.column_names
    }


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]

"""A table file in pieces of bounded size: CSV, JSON lines or Parquet, the first two also gzipped."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.lines import json_lines, text_lines

SUFFIXES = (".csv", ".jsonl", ".parquet")
_ROWS = 1 << 16
_LONGEST_NAME = 1000
_SHOWN = 10
_NO_VALUE = ["", "null", "None", "NA", "N/A"]


@dataclass(frozen=True)
class Piece:
    """Some rows of a file.

    Parameters
    ----------
    names
        Its column names.
    columns
        The columns by name.
    places
        Where each row stands, for messages.
    """

    names: list[str]
    columns: dict[str, pa.Array]
    places: list[str] | tuple[str, int]

    def place(self, index: int) -> str:
        """Say where a row stands."""
        if isinstance(self.places, list):
            return self.places[index]
        file, first = self.places
        return f"{file} row {first + index}"


def schema_names(file: LogFile) -> list[str]:
    """Return the column names of a Parquet file; none if it is none."""
    if file.suffix != ".parquet":
        return []
    try:
        return pq.read_schema(file.path).names
    except (pa.ArrowException, OSError, ValueError):
        return []


def pieces(file: LogFile, draft: Draft) -> Iterator[Piece]:
    """Yield a file's rows in pieces; lines that cannot be read are counted and left out."""
    if file.suffix == ".parquet":
        yield from _parquet(file, draft)
    elif file.suffix == ".csv":
        yield from _csv(file, draft)
    else:
        yield from _json(file, draft)


def _parquet(file: LogFile, draft: Draft) -> Iterator[Piece]:
    first = 1
    try:
        parquet = pq.ParquetFile(file.path, page_checksum_verification=True)
        for batch in parquet.iter_batches(_ROWS):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield Piece(batch.schema.names, columns, (file.name, first))
            first += len(batch)
    except (pa.ArrowException, OSError, ValueError) as error:
        what = "cannot be read to its end; what comes after is left out"
        draft.damage.add(what, f"{file.name} after row {first - 1}", (str(error).splitlines() or ["damaged"])[0])
    if draft.done:
        draft.done(file.path.stat().st_size)


def _csv(file: LogFile, draft: Draft) -> Iterator[Piece]:
    """Read as text, line by line into blocks, so that a bad line costs only itself and its place is known."""
    names: list[str] = []
    texts: list[str] = []
    places: list[str] = []
    for number, line in text_lines(file, draft.damage, draft.done):
        if not names:
            names = [name.strip().strip('"').strip() for name in line.split(",")]
            continue
        texts.append(line if line.endswith("\n") else line + "\n")
        places.append(f"{file.name} line {number}")
        if len(texts) == _ROWS:
            yield from _csv_block(names, texts, places, draft)
            texts, places = [], []
    if texts:
        yield from _csv_block(names, texts, places, draft)
    if not names:
        draft.damage.add("an empty file", file.name)


def _csv_block(names: list[str], texts: list[str], places: list[str], draft: Draft) -> Iterator[Piece]:
    wanted = len(names)
    right = [index for index, text in enumerate(texts) if '"' in text or text.count(",") == wanted - 1]
    for index in set(range(len(texts))).difference(right) if len(right) < len(texts) else ():
        what = "a line has another number of fields than the header, and is left out"
        draft.damage.add(what, places[index], texts[index].count(",") + 1, str(wanted))
    bad: list[int] = []
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader("".join(texts[index] for index in right).encode("utf-8", "replace")),
            arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=1 << 30),
            arrow_csv.ParseOptions(invalid_row_handler=lambda row: (bad.append(row.number or 0), "skip")[1]),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), null_values=_NO_VALUE, strings_can_be_null=True
            ),
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        what = "lines are not CSV, and are left out"
        draft.damage.add(what, places[0], (str(error).splitlines() or ["damaged"])[0], count=len(right))
        return
    if bad:
        what = "a line has another number of fields than the header, and is left out"
        draft.damage.add(what, f"after {places[0]}", count=len(bad), allowed=str(wanted))
    kept = [places[index] for index in right]
    columns = {name: table.column(position).combine_chunks() for position, name in enumerate(names)}
    if table.num_rows:
        yield Piece(names, columns, kept if len(kept) == table.num_rows else (f"{places[0]} and on,", 1))


def _json(file: LogFile, draft: Draft) -> Iterator[Piece]:
    having: Counter[str] = Counter()
    total = 0
    rows: list[dict[str, object]] = []
    places: list[str] = []
    for place, row in json_lines(file, draft.damage, draft.done):
        having.update(row.keys())
        total += 1
        rows.append({name: None if _is_bulk(value) else value for name, value in row.items()})
        places.append(place)
        if len(rows) == _ROWS:
            yield _json_piece(rows, places)
            rows, places = [], []
    some = [f"{name} in {count:,}" for name, count in having.items() if count < total]
    if some:
        draft.found.append(
            f"of {total:,} rows of {file.name}, not all have the same columns: {', '.join(some[:_SHOWN])}"
        )
    if rows:
        yield _json_piece(rows, places)


def _is_bulk(value: object) -> bool:
    """Tell texts, lists and objects, which no column of a table takes, from names and numbers."""
    return isinstance(value, list | dict) or (isinstance(value, str) and len(value) > _LONGEST_NAME)


def _json_piece(rows: list[dict[str, object]], places: list[str]) -> Piece:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return Piece(names, {name: _array([row.get(name) for row in rows]) for name in names}, places)


def _array(values: list[object]) -> pa.Array:
    """Return the values as an array, mixed types as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or len(kinds) == 1:
        try:
            return pa.array(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass
    texts = [None if value is None else str(value).encode("utf-8", "replace").decode("utf-8") for value in values]
    return pa.array(texts, pa.string())

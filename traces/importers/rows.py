"""Rows of a table as they are read, packed into Arrow now and then, so that many millions of them fit into memory."""

from collections.abc import Mapping
from functools import cache

import pyarrow as pa

from rollsim.traces.schema import TABLES

CHUNK = 1 << 16


class Rows:
    """A growing table. Columns that never got a value share their memory.

    Parameters
    ----------
    name
        A name in `rollsim.traces.schema.TABLES`.
    """

    def __init__(self, name: str) -> None:
        self.schema = TABLES[name]
        self._lists: dict[str, list[object]] = {}
        self._pending = 0
        self._chunks: list[pa.Table] = []

    def __len__(self) -> int:
        return sum(map(len, self._chunks)) + self._pending

    def add(self, row: Mapping[str, object]) -> None:
        """Add a row; columns that it does not have are null."""
        for name, value in row.items():
            if value is not None:
                column = self._lists.setdefault(name, [])
                if len(column) < self._pending:
                    column.extend([None] * (self._pending - len(column)))
                column.append(value)
        self._pending += 1
        if self._pending == CHUNK:
            self._pack()

    def add_columns(self, columns: Mapping[str, pa.Array], labels: Mapping[str, str]) -> None:
        """Add whole columns of one length, and labels that all rows have; they come in chunks of `CHUNK` rows."""
        self._pack()
        count = len(next(iter(columns.values())))
        for start in range(0, count, CHUNK):
            piece = {name: values[start : start + CHUNK] for name, values in columns.items()}
            size = min(CHUNK, count - start)
            self._chunks.append(self._made(piece | {name: _label(label)[:size] for name, label in labels.items()}))

    def table(self) -> pa.Table:
        """Return all rows as one table."""
        self._pack()
        return pa.concat_tables([self.schema.empty_table(), *self._chunks]).unify_dictionaries()

    def replace(self, table: pa.Table) -> None:
        """Let these be the rows."""
        self._chunks, self._lists, self._pending = [table], {}, 0

    def _pack(self) -> None:
        if not self._pending:
            return
        columns = {}
        for name, values in self._lists.items():
            values.extend([None] * (self._pending - len(values)))
            columns[name] = pa.array(values, _plain(self.schema.field(name).type))
        count, self._lists, self._pending = self._pending, {}, 0
        self._chunks.append(self._made(columns or {self.schema.names[0]: _nulls(pa.string())[:count]}))

    def _made(self, columns: Mapping[str, pa.Array]) -> pa.Table:
        count = len(next(iter(columns.values())))
        arrays = []
        for field in self.schema:
            array = columns.get(field.name)
            if array is None:
                array = _nulls(field.type)[:count]
            elif pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(array.type):
                array = array.dictionary_encode()
            arrays.append(array.cast(field.type))
        return pa.Table.from_arrays(arrays, schema=self.schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


@cache
def _label(name: str) -> pa.Array:
    return pa.repeat(pa.scalar(name), CHUNK).dictionary_encode()


@cache
def _nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(CHUNK, kind)

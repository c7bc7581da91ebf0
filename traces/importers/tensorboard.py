"""Scalars of TensorBoard's event files, read without TensorBoard.

A file is a row of records: length (8 bytes), its checksum (4), the event, its checksum (4). An event is a protocol
buffer (``tensorflow/core/util/event.proto``): wall time (field 1), step (2), summary (5) with values (1) of a tag (1)
and a simple value (2) or a tensor (8), whose one float stands in float_val (5) or tensor_content (4).
"""

import struct
import zlib
from collections.abc import Iterator

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.metric_names import likeliest, meanings

EVENTS = "TensorBoard events"
_LONGEST = 1 << 26
_SEARCHED = 2000


def is_events(file: LogFile, framework: str) -> bool:
    """Tell whether a file is one, with tags of a framework."""
    if ".tfevents." not in file.path.name:
        return False
    tags: set[str] = set()
    for count, (_, _, values) in enumerate(_events(file, None)):
        tags.update(values)
        if count == _SEARCHED:
            break
    return likeliest(tags) == framework


def read_events(file: LogFile, draft: Draft) -> None:
    """Read a record an event."""
    for step, wall_s, values in _events(file, draft):
        if values:
            is_end = "step_s" in meanings(draft.framework, values)
            draft.steps.add(step, values, f"{file.name} at step {step}", wall_s, is_end=is_end)
    if draft.done:
        draft.done(file.path.stat().st_size)


def _events(file: LogFile, draft: Draft | None) -> Iterator[tuple[int, float | None, dict[str, float]]]:
    try:
        with file.open() as stream:
            while header := stream.read(12):
                place = f"{file.name} byte {stream.tell() - len(header)}"
                length = struct.unpack("<Q", header[:8])[0] if len(header) == 12 else _LONGEST + 1
                data = stream.read(length + 4) if length <= _LONGEST else b""
                if len(data) != length + 4:
                    if draft:
                        draft.damage.add("events end within a record; what comes after is left out", place)
                    return
                try:
                    yield _event(data[:length])
                except (ValueError, IndexError, struct.error) as error:
                    if draft:
                        draft.damage.add("an event that cannot be read, and is left out", place, str(error))
    except (OSError, EOFError, zlib.error) as error:
        if draft:
            draft.damage.add("cannot be read to its end; what comes after is left out", file.name, str(error))


def _event(data: bytes) -> tuple[int, float | None, dict[str, float]]:
    step, wall_s, values = 0, None, {}
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes) and len(value) == 8:
            (wall_s,) = struct.unpack("<d", value)
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            values |= dict(_scalars(value))
    return step, wall_s, values


def _scalars(summary: bytes) -> Iterator[tuple[str, float]]:
    for number, entry in _fields(summary):
        if number != 1 or not isinstance(entry, bytes):
            continue
        parts = dict(_fields(entry))
        tag, simple, tensor = parts.get(1), parts.get(2), parts.get(8)
        if not isinstance(tag, bytes):
            continue
        if isinstance(tensor, bytes) and not isinstance(simple, bytes):
            inner = dict(_fields(tensor))
            simple = inner.get(5, inner.get(4))
        if isinstance(simple, bytes) and len(simple) == 4:
            yield tag.decode("utf-8", "replace"), struct.unpack("<f", simple)[0]


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol buffer: whole numbers, or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(data):
            raise ValueError("a field is longer than the event")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number is too long")

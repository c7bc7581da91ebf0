"""A timeline as Chrome trace events (JSON), which Perfetto and ``chrome://tracing`` open.

Format: "Trace Event Format", Google, 2016: complete events ``X`` and counters ``C``, times in microseconds.
"""

import json
from collections.abc import Iterator, Mapping

import pyarrow as pa

_TRAINER, _SPANS, _SEGMENTS, _GAUGES = 1, 2, 3, 4
_NAMES = {_TRAINER: "train steps", _SPANS: "spans", _SEGMENTS: "trajectories", _GAUGES: "replicas"}
_COUNTERS = ("running", "waiting", "kv_used_blocks")


def chrome_lines(tables: Mapping[str, pa.Table]) -> Iterator[str]:
    """Yield the document, an event a line: steps, spans, segments of trajectories, and gauges as counters."""
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    first = True
    for event in _events(tables):
        yield ("" if first else ",\n") + json.dumps(event)
        first = False
    yield "\n]}\n"


def _events(tables: Mapping[str, pa.Table]) -> Iterator[dict[str, object]]:
    for process, name in _NAMES.items():
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    if "steps" in tables:
        yield from _steps(tables["steps"])
    for table, process, lane, name in (("spans", _SPANS, "lane", "name"), ("segments", _SEGMENTS, "sample_id", "kind")):
        if table in tables:
            yield from _spans(tables[table], process, lane, name)
    if "gauges" in tables:
        yield from _gauges(tables["gauges"])


def _steps(steps: pa.Table) -> Iterator[dict[str, object]]:
    for row in steps.select(["step", "t0_s", "t1_s", "published_s"]).to_pylist():
        if row["t0_s"] is not None and row["t1_s"] is not None:
            yield _complete(f"step {row['step']}", _TRAINER, 1, row["t0_s"], row["t1_s"])
        if row["t1_s"] is not None and row["published_s"] is not None:
            yield _complete(f"publish {row['step']}", _TRAINER, 2, row["t1_s"], row["published_s"])


def _spans(table: pa.Table, process: int, lane: str, name: str) -> Iterator[dict[str, object]]:
    lanes: dict[str, int] = {}
    for batch in table.select([lane, name, "t0_s", "t1_s"]).to_batches(8192):
        for row in batch.to_pylist():
            if row["t0_s"] is None or row["t1_s"] is None:
                continue
            label = str(row[lane])
            if label not in lanes:
                lanes[label] = len(lanes) + 1
                args = {"name": label}
                yield {"ph": "M", "name": "thread_name", "pid": process, "tid": lanes[label], "args": args}
            yield _complete(str(row[name]), process, lanes[label], row["t0_s"], row["t1_s"])


def _gauges(gauges: pa.Table) -> Iterator[dict[str, object]]:
    for batch in gauges.select(["t_s", "replica", *_COUNTERS]).to_batches(8192):
        for row in batch.to_pylist():
            known = {name: row[name] for name in _COUNTERS if row[name] is not None}
            if row["t_s"] is not None and known:
                name = f"replica {row['replica']}"
                yield {"ph": "C", "name": name, "pid": _GAUGES, "tid": 0, "ts": row["t_s"] * 1e6, "args": known}


def _complete(name: str, process: int, thread: int, t0_s: float, t1_s: float) -> dict[str, object]:
    return {"ph": "X", "name": name, "pid": process, "tid": thread, "ts": t0_s * 1e6, "dur": (t1_s - t0_s) * 1e6}

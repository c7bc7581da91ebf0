"""A timeline as Chrome trace events (JSON), which Perfetto and ``chrome://tracing`` open.

Format: "Trace Event Format", Google, 2016: complete events ``X`` and counters ``C``, times in microseconds.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from rollsim.traces.exporters.tracks import Slice, tracks


def chrome_lines(tables: Mapping[str, pa.Table]) -> Iterator[str]:
    """Yield the document, an event a line: a process for each kind of track and replica, a thread for each track."""
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    first = True
    for event in _events(tables):
        yield ("" if first else ",\n") + json.dumps(event)
        first = False
    yield "\n]}\n"


def _events(tables: Mapping[str, pa.Table]) -> Iterator[dict[str, Any]]:
    processes: dict[tuple[str, ...], int] = {}
    threads: dict[tuple[str, ...], int] = {}
    count: Counter[tuple[str, ...]] = Counter()
    for shown in tracks(tables):
        process = shown.track[:-1] if isinstance(shown, Slice) else shown.track
        if process not in processes:
            processes[process] = len(processes) + 1
            yield _named("process_name", processes[process], 0, ", ".join(process))
        place = {"pid": processes[process], "ts": (shown.t0_s if isinstance(shown, Slice) else shown.t_s) * 1e6}
        if not isinstance(shown, Slice):
            yield {"ph": "C", "name": shown.track[-1], "tid": 0, "args": dict(shown.values)} | place
            continue
        if shown.track not in threads:
            count[process] += 1
            threads[shown.track] = count[process]
            yield _named("thread_name", processes[process], threads[shown.track], shown.track[-1])
        event = {"ph": "X", "name": shown.name, "tid": threads[shown.track], "dur": (shown.t1_s - shown.t0_s) * 1e6}
        yield event | place | ({"args": dict(shown.args)} if shown.args else {})


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}

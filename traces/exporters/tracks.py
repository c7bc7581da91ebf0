"""A run as a timeline: slices and counters on named tracks, whatever format they are written in.

Trainer, version of the weights, lanes of the spans table, and per replica its batch, its KV and what its trajectories
did. Trajectories that a replica holds at once lie on slots, like the rows of a batch: each takes the lowest free one.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rollsim.traces.run import Run

_TABLES = ("steps", "spans", "segments", "rollouts", "gauges")
TRAINER, SPANS, ROLLOUT = "trainer", "spans", "rollout"
_COUNTERS = ("running", "waiting", "kv_used_blocks")
_ROWS = 8192


@dataclass(frozen=True)
class Slice:
    """Something that took from `t0_s` to `t1_s` [s]; slices of a track come in order and do not overlap."""

    track: tuple[str, ...]
    name: str
    t0_s: float
    t1_s: float
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Counter:
    """Values that hold from `t_s` on, by name."""

    track: tuple[str, ...]
    t_s: float
    values: Mapping[str, float]


def timeline_tables(run: Run) -> dict[str, pa.Table]:
    """The tables of a run that a timeline is made of: rollouts only where no segments say more than they."""
    tables = {name: run.table(name) for name in _TABLES if name in run.tables}
    if "segments" in tables and len(tables["segments"]):
        tables.pop("rollouts", None)
    return tables


def tracks(tables: Mapping[str, pa.Table]) -> Iterator[Slice | Counter]:
    """Yield all that `timeline_tables` tell of time; what has no times is left out."""
    if "steps" in tables:
        yield from _trainer(tables["steps"])
    if "spans" in tables:
        yield from _lanes(tables["spans"])
    if "segments" in tables:
        yield from _trajectories(tables["segments"], "t0_s", "t1_s", ("kind", "version", "tokens"))
    if "rollouts" in tables:
        yield from _trajectories(
            tables["rollouts"], "t_start_s", "t_end_s", ("group_id", "output_tokens", "version_start", "version_end")
        )
    if "gauges" in tables:
        yield from _gauges(tables["gauges"])


def _trainer(steps: pa.Table) -> Iterator[Slice]:
    rows = steps.select(["step", "version", "t0_s", "t1_s", "published_s"]).to_pylist()
    for row in rows:
        if row["t0_s"] is not None and row["t1_s"] is not None:
            yield Slice((TRAINER, "steps"), f"step {row['step']}", row["t0_s"], row["t1_s"])
    for row in rows:
        if row["t1_s"] is not None and row["published_s"] is not None:
            yield Slice((TRAINER, "publish"), f"publish {row['step']}", row["t1_s"], row["published_s"])
    out = [row for row in rows if row["version"] is not None and row["published_s"] is not None]
    for row, later in pairwise(out):
        yield Slice((TRAINER, "newest version"), f"version {row['version']}", row["published_s"], later["published_s"])


def _lanes(spans: pa.Table) -> Iterator[Slice]:
    ends: dict[str, list[float]] = {}
    for row in _timed(spans, ["lane", "name"], "t0_s", "t1_s", [("lane", "ascending")]):
        taken = ends.setdefault(str(row["lane"]), [])
        row_of_lane = next((i for i, end in enumerate(taken) if end <= row["t0_s"]), len(taken))
        taken[row_of_lane : row_of_lane + 1] = [row["t1_s"]]
        lane = str(row["lane"]) if row_of_lane == 0 else f"{row['lane']} ({row_of_lane + 1})"
        yield Slice((SPANS, lane), str(row["name"]), row["t0_s"], row["t1_s"])


def _trajectories(table: pa.Table, t0: str, t1: str, told: tuple[str, ...]) -> Iterator[Slice]:
    replica, free, busy = None, [], []
    for row in _timed(table, ["sample_id", "replica", *told], t0, t1, [("replica", "ascending")]):
        if row["replica"] != replica:
            replica, free, busy = row["replica"], [], []
        while busy and busy[0][0] <= row[t0]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        slot = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (row[t1], slot))
        place = "elsewhere" if replica is None else f"replica {replica}"
        args = {name: row[name] for name in told if row[name] is not None}
        yield Slice((ROLLOUT, place, f"slot {slot}"), f"sample {row['sample_id']}", row[t0], row[t1], args)


def _gauges(gauges: pa.Table) -> Iterator[Counter]:
    for batch in gauges.select(["t_s", "replica", *_COUNTERS]).to_batches(_ROWS):
        for row in batch.to_pylist():
            known = {name: row[name] for name in _COUNTERS if row[name] is not None}
            if row["t_s"] is not None and known:
                yield Counter((ROLLOUT, f"replica {row['replica']}"), row["t_s"], known)


def _timed(table: pa.Table, names: list[str], t0: str, t1: str, order: list[tuple[str, str]]) -> Iterator[dict]:
    """Rows with both times, in order, by start."""
    table = table.select([*names, t0, t1])
    known = pc.and_(pc.is_valid(table[t0]), pc.greater_equal(table[t1], table[t0]))
    table = table.filter(known)
    for i, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(i, column.name, table[column.name].cast(column.type.value_type))
    for batch in table.sort_by([*order, (t0, "ascending")]).to_batches(_ROWS):
        yield from batch.to_pylist()

"""Step metrics as trackers keep them: a W&B history (CSV, JSON lines, Parquet), or names to steps to values as JSON.

`wandb.Api().run(RUN).history()` or `scan_history()` gives the first, `tests/json_dump_tb_logs.py` of NeMo-RL the
second.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files
from rollsim.traces.importers.lines import json_lines, whole_json
from rollsim.traces.metric_names import STEP_NAMES, frameworks_of

HISTORY, BY_NAME = "history", "metrics by name"
LOOKS_FOR = "a W&B history (.csv, .jsonl, .parquet) with this framework's metric names"
_COUNTERS = ("_step", "step", "global_step")
_CLOCKS = ("_timestamp", "time", "timestamp")
_NO_METRICS = frozenset((*_COUNTERS, *_CLOCKS, "_runtime", *(name for names in STEP_NAMES.values() for name in names)))


def tracker_kind(file: LogFile, framework: str) -> str | None:
    """Tell whether a file is a tracker's, with step metrics under the names of this framework."""
    names: set[str] = set(file.keys)
    if file.suffix == ".csv":
        names = set(file.header)
    elif file.suffix == ".parquet":
        names = set(_parquet_names(file))
    elif file.suffix not in (".jsonl", ".json"):
        return None
    counts = frameworks_of(names)
    best = max(counts.values(), default=0)
    if not best or counts.get(framework) != best:
        return None
    if file.suffix == ".json":
        return BY_NAME if all(isinstance(value, dict) for entry in file.objects for value in entry.values()) else None
    return HISTORY if names & {*_COUNTERS, *STEP_NAMES.get(framework, ())} else None


def read_trackers(files: Files, draft: Draft) -> None:
    """Read those of the files that are a tracker's."""
    for file in files.get(HISTORY, ()):
        read_history(file, draft)
    for file in files.get(BY_NAME, ()):
        read_by_name(file, draft)


def read_history(file: LogFile, draft: Draft) -> None:
    """Read a record a row; the step is the framework's own if it logs it, else the tracker's counter."""
    for place, row in _rows(file, draft):
        own = (row[name] for name in (*STEP_NAMES.get(draft.framework, ()), *_COUNTERS) if row.get(name) is not None)
        clock = next((row[name] for name in _CLOCKS if isinstance(row.get(name), int | float)), None)
        values = {name: value for name, value in row.items() if name not in _NO_METRICS}
        draft.steps.add(next(own, None), values, place, float(clock) if isinstance(clock, int | float) else None)


def read_by_name(file: LogFile, draft: Draft) -> None:
    """Read ``{name: {step: value}}``."""
    document = whole_json(file, draft.damage, draft.done)
    for name, series in document.items() if isinstance(document, dict) else ():
        if not isinstance(series, dict):
            draft.damage.add("a metric is not steps with values, and is left out", f"{file.name}, {name}")
            continue
        for step, value in series.items():
            place = f"{file.name}, {name} at {step}"
            draft.steps.add(int(step) if str(step).isdecimal() else step, {name: value}, place)


def _rows(file: LogFile, draft: Draft) -> Iterator[tuple[str, Mapping[str, object]]]:
    if file.suffix == ".jsonl":
        yield from json_lines(file, draft.damage, draft.done)
        return
    number = 1 if file.suffix == ".csv" else 0
    unit = "line" if file.suffix == ".csv" else "row"
    try:
        for batch in _batches(file, draft):
            for row in batch.to_pylist():
                number += 1
                yield f"{file.name} {unit} {number}", row
    except (pa.ArrowException, OSError, ValueError) as error:
        what = "cannot be read to its end; what comes after is left out"
        draft.damage.add(what, f"{file.name} after {unit} {number}", (str(error).splitlines() or ["damaged"])[0])


def _batches(file: LogFile, draft: Draft) -> Iterator[pa.RecordBatch]:
    if file.suffix == ".parquet":
        yield from pq.ParquetFile(file.path).iter_batches(1024)
        return

    def wrong(row: arrow_csv.InvalidRow) -> str:
        what = "a line has another number of fields than the header, and is left out"
        draft.damage.add(what, file.name, row.actual_columns, f"{row.expected_columns}")
        return "skip"

    with file.open() as stream:
        yield from arrow_csv.open_csv(
            stream,
            arrow_csv.ReadOptions(use_threads=False, block_size=1 << 24),
            arrow_csv.ParseOptions(invalid_row_handler=wrong),
        )


def _parquet_names(file: LogFile) -> list[str]:
    try:
        return pq.read_schema(file.path).names
    except (pa.ArrowException, OSError, ValueError):
        return []

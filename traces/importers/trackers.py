"""Step metrics as trackers keep them: TensorBoard events, a W&B history, or names to steps to values as JSON.

`wandb.Api().run(RUN).history()` or `scan_history()` gives a history, as CSV, JSON lines or Parquet;
`tests/json_dump_tb_logs.py` of NeMo-RL the last.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from rollsim.traces.importers import tensorboard
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files
from rollsim.traces.importers.lines import json_lines, whole_json
from rollsim.traces.importers.pieces import pieces, schema_names
from rollsim.traces.metric_names import STEP_NAMES, frameworks_of, meanings
from rollsim.traces.request_columns import numbers

HISTORY, BY_NAME = "history", "metrics by name"
LOOKS_FOR = "TensorBoard events, or a W&B history (.csv, .jsonl, .parquet), with its metric names"
_COUNTERS = ("_step", "step", "global_step")
_CLOCKS = ("_timestamp", "time", "timestamp")
_NO_METRICS = frozenset((*_COUNTERS, *_CLOCKS, "_runtime", *(name for names in STEP_NAMES.values() for name in names)))


def tracker_kind(file: LogFile, framework: str) -> str | None:
    """Tell whether a file is a tracker's, with step metrics under the names of this framework."""
    if tensorboard.is_events(file, framework):
        return tensorboard.EVENTS
    names: set[str] = set(file.keys)
    if file.suffix == ".csv":
        names = set(file.header)
    elif file.suffix == ".parquet":
        names = set(schema_names(file))
    elif file.suffix not in (".jsonl", ".json"):
        return None
    counts = frameworks_of(frozenset(names))
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
    for file in files.get(tensorboard.EVENTS, ()):
        tensorboard.read_events(file, draft)
    for file in files.get(BY_NAME, ()):
        read_by_name(file, draft)


def read_history(file: LogFile, draft: Draft) -> None:
    """Read a record a row; the step is the framework's own if it logs it, else the tracker's counter."""
    without = 0
    for place, row in _rows(file, draft):
        own = (row[name] for name in (*STEP_NAMES.get(draft.framework, ()), *_COUNTERS) if row.get(name) is not None)
        clock = next((row[name] for name in _CLOCKS if isinstance(row.get(name), int | float)), None)
        values = {name: value for name, value in row.items() if name not in _NO_METRICS}
        step = next(own, None)
        if step is None and clock is not None:
            without += 1
            continue
        is_end = "step_s" in meanings(draft.framework, numeric(values))
        draft.steps.add(step, values, place, float(clock) if isinstance(clock, int | float) else None, is_end=is_end)
    if without:
        draft.found.append(
            f"{without:,} records of {file.name} have a time and no step (samples of engines): passed over"
        )


def numeric(values: Mapping[str, object]) -> dict[str, float]:
    """Return those of the values that are numbers."""
    return {name: value for name, value in values.items() if isinstance(value, int | float)}


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
    for piece in pieces(file, draft):
        known = {name: numbers(array) for name, array in piece.columns.items() if not pa.types.is_nested(array.type)}
        usable = {name: (values, ~(absent | malformed)) for name, (values, absent, malformed) in known.items()}
        count = len(next(iter(piece.columns.values())))
        for index in range(count):
            yield (
                piece.place(index),
                {name: float(values[index]) for name, (values, there) in usable.items() if there[index]},
            )

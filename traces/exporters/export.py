"""Writes a run in a format of somebody else."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from rollsim.traces.errors import BadInput, Fault, closest
from rollsim.traces.exporters.chrome_trace import chrome_lines
from rollsim.traces.exporters.metric_logs import carried, metric_log
from rollsim.traces.exporters.perfetto_trace import perfetto_packets
from rollsim.traces.exporters.step_values import step_values
from rollsim.traces.exporters.tracks import timeline_tables
from rollsim.traces.exporters.trajectories import trajectory_lines
from rollsim.traces.metric_names import FRAMEWORKS
from rollsim.traces.run import Run

CHROME, PERFETTO, TABLE = "chrome", "perfetto", "table"
FORMATS = (*FRAMEWORKS, TABLE, PERFETTO, CHROME)
_TIMELINES = (PERFETTO, CHROME)
_OF_STEPS = ("steps", "rollouts", "ledger")


def export(run: Run, kind: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Write a run to a new file, whole or not at all, and say what is in it.

    Parameters
    ----------
    run
        The run.
    kind
        One of `FORMATS`: step metrics of a framework, the trajectories, or a timeline.
    path
        The file to make.

    Raises
    ------
    BadInput
        For another format, a run without what the format is made of, or a place that is taken or cannot be written.
    """
    target = Path(path)
    faults = []
    if kind not in FORMATS:
        near = closest(kind, FORMATS)
        faults.append(Fault("--format", given=kind, allowed=", ".join(FORMATS), closest=near, message="no such format"))
    if not os.fspath(path) or target.exists():
        faults.append(Fault("--out", given=os.fspath(path), allowed="a new file", message="stands there already"))
    if faults:
        raise BadInput(faults)
    if kind in _TIMELINES:
        tables = timeline_tables(run)
    else:
        names = ("rollouts",) if kind == TABLE else _OF_STEPS
        tables = {name: run.table(name) for name in names if name in run.tables}
    written = _written(kind, tables, run) if kind in FRAMEWORKS else list(tables)
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        with partial.open("xb") as file:
            file.writelines(_pieces(kind, tables))
        partial.rename(target)
    except OSError as error:
        fault = Fault(str(target), message=f"cannot be written: {error.strerror or error}", allowed="a writable place")
        raise BadInput(fault) from error
    finally:
        partial.unlink(missing_ok=True)
    return {"format": "rollsim-export", "run": str(run.path), "kind": kind, "file": str(target), "written": written}


def _written(kind: str, tables: Mapping[str, pa.Table], run: Run) -> list[str]:
    if "steps" not in tables or not len(tables["steps"]):
        allowed = f"a run with train steps; without, {TABLE} or {CHROME}"
        raise BadInput(Fault(str(run.path), "steps", message="has no train steps", allowed=allowed))
    values = step_values(tables)
    return [name for meaning, name in carried(kind).items() if meaning in values]


def _pieces(kind: str, tables: Mapping[str, pa.Table]) -> Iterator[bytes]:
    if kind == PERFETTO:
        return perfetto_packets(tables)
    if kind == CHROME:
        lines = chrome_lines(tables)
    elif kind == TABLE:
        lines = trajectory_lines(tables["rollouts"])
    else:
        lines = metric_log(kind, step_values(tables))
    return (line.encode() for line in lines)

"""Writes an imported log as a run folder, so that all that reads runs reads it."""

import os
from collections.abc import Mapping

import numpy as np

from rollsim.traces.importers.imported import ImportedLog
from rollsim.traces.run import Run
from rollsim.traces.schema import build
from rollsim.traces.writer import write_run


def write_import(
    log: ImportedLog, path: str | os.PathLike[str], summary: Mapping[str, object], wall_s: float | None = None
) -> Run:
    """Write it; there is always a table ``rollouts``, without rows if the log has no trajectories.

    Parameters
    ----------
    log
        What was read.
    path
        The folder to make.
    summary
        What goes into ``summary.json``; under ``log``, what `ImportedLog.document` says.
    wall_s
        How long the import took [s].

    Raises
    ------
    BadInput
        As `rollsim.traces.writer.write_run`.
    """
    tables = {"rollouts": build("rollouts", {"reward": np.empty(0)})} | log.tables
    config = {"source": log.framework, "path": log.path, "facts": dict(log.facts)}
    return write_run(path, tables, config, summary, wall_s=wall_s)

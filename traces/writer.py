"""Writes a run folder whole or not at all."""

import json
import os
import platform
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.exchange import exchange
from rollsim.traces.run import FORMAT, Run, is_run
from rollsim.traces.schema import SCHEMA_VERSION

_RECORDED_PACKAGES = ("rollsim", "numpy", "numba", "pyarrow", "scipy", "simpy")
# Rows of a row group: all of one are held encoded in memory.
_LEAST_ROWS, _MOST_ROWS = 1 << 13, 1 << 17
_REPLACED = "-replaced"


def write_run(
    path: str | os.PathLike[str],
    tables: Mapping[str, pa.Table],
    config: Mapping[str, object],
    summary: Mapping[str, object],
    *,
    seed: int | None = None,
    inputs: Mapping[str, str] | None = None,
    wall_s: float | None = None,
) -> Run:
    """Write a run folder; an older run at the same place is replaced, anything else is left alone.

    Everything is written to a hidden folder beside the target and renamed at the end, so that a half-written run is
    never seen under its name.

    Parameters
    ----------
    path
        The folder to make.
    tables
        Tables by name, from `rollsim.traces.schema.build`.
    config, summary
        What goes into the two documents, as JSON.
    seed
        Seed of the run.
    inputs
        Name of each input (trace, profile) to the hash of its content.
    wall_s
        How long the run took [s].

    Raises
    ------
    BadInput
        If something that is not a run stands at the path, or it cannot be written there.
    """
    check_target(path)
    target = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would write through a link
    manifest = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in _RECORDED_PACKAGES},
        "seed": seed,
        "inputs": dict(inputs or {}),
        "wall_s": wall_s,
        "tables": {name: table.num_rows for name, table in tables.items()},
    }
    documents = {"config": dict(config), "manifest": manifest, "summary": dict(summary)}
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target)
        partial.mkdir()
        for name, document in documents.items():
            text = json.dumps(document, indent=2, allow_nan=False)
            (partial / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        for name, table in tables.items():
            _write_table(partial / f"{name}.parquet", table)
        _put_in_place(partial, target)
    except OSError as error:
        fault = Fault(str(target), message=f"cannot be written: {error.strerror or error}", allowed="a writable place")
        raise BadInput(fault) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Run(target, documents["config"], manifest, documents["summary"])


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse a place where a run must not be written; for callers that want to know before a long run.

    Raises
    ------
    BadInput
        If a file, or a folder that is neither empty nor a run, stands there.
    """
    target = Path(path)
    allowed = "a new or empty folder, or an older run, which is replaced"
    if not os.fspath(path):
        raise BadInput(Fault("--out", given="", allowed=allowed, message="no name"))
    if target.is_dir():
        if any(target.iterdir()) and not is_run(target):
            raise BadInput(Fault(str(target), allowed=allowed, message="is a folder with other things in it"))
    elif target.exists() or target.is_symlink():
        raise BadInput(Fault(str(target), allowed=allowed, message="is a file"))


def _write_table(file: Path, table: pa.Table) -> None:
    labels = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    pq.write_table(
        table,
        file,
        compression="zstd",
        row_group_size=min(max(_LEAST_ROWS, len(table) // 8), _MOST_ROWS),
        use_dictionary=labels,  # pyright: ignore[reportArgumentType] - pyarrow takes a list of columns too
        write_page_checksum=True,
    )


def _put_in_place(partial: Path, target: Path) -> None:
    """Rename to the target; an older run there is kept until the new one stands."""
    if not (target.is_dir() and any(target.iterdir())):
        partial.rename(target)
    elif not exchange(partial, target):
        replaced = target.with_name(f"{partial.name}{_REPLACED}")
        target.rename(replaced)
        partial.rename(target)
        shutil.rmtree(replaced)


def _remove_abandoned(target: Path) -> None:
    """Remove what a killed process left when it was writing the same run, but for an older run that it had moved."""
    for left in target.parent.glob(f".{target.name}.partial-*"):
        pid = left.name.rsplit("partial-", 1)[1].removesuffix(_REPLACED)
        if pid.isdecimal() and (int(pid) == os.getpid() or not _is_alive(int(pid))):
            if left.name.endswith(_REPLACED) and not target.exists():
                left.rename(target)
            else:
                shutil.rmtree(left, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True

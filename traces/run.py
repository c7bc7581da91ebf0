"""A run folder: config, manifest, summary and tables.

``config.json`` (resolved), ``manifest.json`` (versions, seed, hashes of the inputs, rows of each table),
``summary.json`` and one ``<table>.parquet`` for each table of `rollsim.traces.schema` that the run has.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rollsim.traces.errors import BadInput, Fault, closest
from rollsim.traces.schema import SCHEMA_VERSION, TABLES

FORMAT = "rollsim-run"
DOCUMENTS = ("config", "manifest", "summary")


@dataclass(frozen=True)
class Run:
    """A run folder that was opened and found whole.

    Parameters
    ----------
    path
        The folder.
    config, manifest, summary
        Contents of the three documents.
    """

    path: Path
    config: dict[str, object]
    manifest: dict[str, object]
    summary: dict[str, object]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Run":
        """Open a run folder.

        Raises
        ------
        BadInput
            If it is not one, is damaged, or was written with a newer schema; names every fault.
        """
        folder = Path(path)
        if not folder.is_dir():
            what = "is not a folder" if folder.exists() else "there is no such folder"
            raise BadInput(Fault(str(folder), message=what, allowed="a folder that rollsim wrote"))
        if not (folder / "manifest.json").is_file():
            raise BadInput(
                Fault(str(folder), "manifest.json", message="not a run folder", allowed="one that rollsim wrote")
            )
        faults: list[Fault] = []
        config, manifest, summary = (_read_document(folder / f"{name}.json", faults) for name in DOCUMENTS)
        if not faults:
            faults = _manifest_faults(folder, manifest)
        if faults:
            raise BadInput(faults)
        return cls(folder, config, manifest, summary)

    @property
    def tables(self) -> list[str]:
        """Names of the tables it has."""
        return list(self.manifest["tables"])  # pyright: ignore[reportArgumentType]

    def table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Read a table, or some of its columns.

        Raises
        ------
        BadInput
            If the run has no such table or column, or the file is damaged.
        """
        if name not in self.tables:
            raise BadInput(
                Fault(
                    str(self.path), "table", name, ", ".join(self.tables), closest(name, self.tables), "no such table"
                )
            )
        known = TABLES[name].names
        unknown = [column for column in columns or () if column not in known]
        if unknown:
            raise BadInput(
                Fault(str(self.path), f"table {name}", column, ", ".join(known), closest(column, known), "no column")
                for column in unknown
            )
        file = self.path / f"{name}.parquet"
        try:
            return pq.read_table(file, columns=columns, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise BadInput(_damaged(file, error)) from error


def is_run(folder: Path) -> bool:
    """Tell whether a folder holds a run, whole or damaged."""
    return _read_document(folder / "manifest.json", []).get("format") == FORMAT


def _read_document(file: Path, faults: list[Fault]) -> dict[str, object]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        faults.append(_damaged(file, error))
        return {}
    if not isinstance(document, dict):
        faults.append(Fault(str(file), given=type(document).__name__, allowed="a JSON object", message="damaged"))
        return {}
    return document


def _manifest_faults(folder: Path, manifest: dict[str, object]) -> list[Fault]:
    file = str(folder / "manifest.json")
    if manifest.get("format") != FORMAT:
        return [Fault(file, "format", manifest.get("format"), FORMAT, message="not a run of rollsim")]
    if manifest.get("schema_version") != SCHEMA_VERSION:
        found = manifest.get("schema_version")
        return [Fault(file, "schema_version", found, str(SCHEMA_VERSION), message="written by another version")]
    tables = manifest.get("tables")
    if not isinstance(tables, dict):
        return [Fault(file, "tables", tables, "table names with their rows", message="damaged")]
    faults = []
    for name, rows in tables.items():
        parquet = folder / f"{name}.parquet"
        if name not in TABLES:
            faults.append(
                Fault(file, f"tables.{name}", name, ", ".join(TABLES), closest(name, TABLES), "no such table")
            )
            continue
        try:
            found = pq.read_metadata(parquet)
        except (pa.ArrowException, OSError) as error:
            faults.append(_damaged(parquet, error))
            continue
        if found.num_rows != rows:
            faults.append(Fault(str(parquet), "rows", found.num_rows, f"{rows}, as the manifest says", None, "damaged"))
        if found.schema.names != TABLES[name].names:
            faults.append(Fault(str(parquet), "columns", allowed=", ".join(TABLES[name].names), message="damaged"))
    return faults


def _damaged(file: Path, error: Exception) -> Fault:
    if isinstance(error, FileNotFoundError):
        return Fault(str(file), message="is missing", allowed="the file as rollsim wrote it")
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return Fault(str(file), message=f"is damaged: {reason[:200]}", allowed="the file as rollsim wrote it")

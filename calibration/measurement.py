"""A measurement's folder: a manifest, a recording per batch, and the same as Parquet tables.

Every file is written beside its place and renamed, so that what is there is whole; a measurement that was stopped goes
on where it stood.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rollsim.calibration.measurement_tables import engine_steps, rollouts
from rollsim.traces.errors import BadInput, Fault

FORMAT = "rollsim-measurement"
SCHEMA_VERSION = 1
# A rerun must measure the same thing.
_SAME = ("engine", "model", "clock", "limits", "options", "seed")
_RUN = ("rows", "prefill_chunks", "preempted", "result", "requests")


class Measurement:
    """A folder of measurements, new or begun.

    Parameters
    ----------
    path
        The folder.

    Raises
    ------
    BadInput
        Something else stands there, or its manifest cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest: dict[str, Any] = {}
        manifest = path / "manifest.json"
        if manifest.is_file():
            self.manifest = read_json(manifest)
            if self.manifest.get("format") != FORMAT:
                raise BadInput(Fault(str(manifest), "format", self.manifest.get("format"), FORMAT))
            if self.manifest.get("schema_version") != SCHEMA_VERSION:
                given, allowed = self.manifest.get("schema_version"), str(SCHEMA_VERSION)
                raise BadInput(Fault(str(manifest), "schema_version", given, allowed))
        elif path.is_dir() and any(file.name != "engine.log" for file in path.iterdir()):
            allowed = "a new or empty folder, or a measurement that was begun"
            raise BadInput(Fault(str(path), allowed=allowed, message="is a folder with other things in it"))
        elif path.exists() and not path.is_dir():
            raise BadInput(Fault(str(path), allowed="a folder", message="is a file"))
        (path / "recordings").mkdir(parents=True, exist_ok=True)

    @property
    def begun(self) -> bool:
        """Whether it has a manifest."""
        return bool(self.manifest)

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Write the manifest of a new measurement; for one that was begun check that it is the same.

        Raises
        ------
        BadInput
            Names everything that differs.
        """
        if not self.begun:
            self.manifest = {"format": FORMAT, "schema_version": SCHEMA_VERSION, **facts}
            self.save()
            return
        faults = [
            Fault(
                str(self.path),
                place,
                given,
                f"{kept!r}, as measured there; or another --out",
                message="another measurement",
            )
            for key in _SAME
            for place, kept, given in _differing(key, self.manifest.get(key), facts.get(key))
        ]
        if faults:
            raise BadInput(faults)

    def save(self) -> None:
        """Write the manifest."""
        write_json(self.path / "manifest.json", self.manifest)

    def repeats(self, name: str) -> int:
        """How often a batch was run."""
        recording = self.recording(name)
        return len(recording["repeats"]) if recording else 0

    def recording(self, name: str) -> dict[str, Any] | None:
        """Return the recording of a batch, if it was run."""
        file = self._file(name)
        return read_json(file) if file.is_file() else None

    def _file(self, name: str) -> Path:
        return self.path / "recordings" / f"{name}.json"

    def add(self, name: str, run: dict[str, Any]) -> int | None:
        """Keep a run of a batch: as its recording, or as one repeat more.

        Returns
        -------
        int or None
            The first step in which it differs from the first run: the engine is not deterministic there. Such a run is
            kept apart, under ``differing``, and in the manifest under ``faults``.
        """
        kept = self.recording(name)
        if kept is None:
            self.keep(name, run)
            return None
        step = _first_difference(kept, run)
        if step is None:
            kept["repeats"] += run["repeats"]
        else:
            kept.setdefault("differing", []).append({"first_step": step, "rows": run["rows"], **run["repeats"][0]})
            fault = f"{name}: a repeat differs from the first run at step {step}"
            self.manifest["faults"] = [*self.manifest.get("faults", ()), fault]
        self.keep(name, kept)
        return step

    def keep(self, name: str, recording: Mapping[str, Any]) -> None:
        """Write the recording of a batch over an older one."""
        write_json(self._file(name), recording)

    def recordings(self) -> dict[str, dict[str, Any]]:
        """Recordings of all batches that were run, in the order of the plan."""
        names = [planned["name"] for planned in self.manifest["planned"]]
        return {name: found for name in names if (found := self.recording(name)) is not None}

    def tables(self) -> dict[str, pa.Table]:
        """Return the recordings as tables of `rollsim.traces.schema`."""
        recordings = self.recordings()
        return {"engine_steps": engine_steps(recordings), "rollouts": rollouts(recordings)}

    def write_tables(self) -> None:
        """Write them as Parquet."""
        for table, made in self.tables().items():
            beside = self.path / f".{table}.parquet.partial"
            pq.write_table(made, beside, compression="zstd")
            beside.replace(self.path / f"{table}.parquet")


def _differing(key: str, kept: Any, given: Any) -> list[tuple[str, Any, Any]]:
    """What differs, leaf by leaf: (place, kept, given)."""
    if isinstance(kept, dict) and isinstance(given, dict):
        return [
            found for name in kept | given for found in _differing(f"{key}.{name}", kept.get(name), given.get(name))
        ]
    return [] if kept == given else [(key, kept, given)]


def _first_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> int | None:
    """The first step that differs; the number of steps if only results do; None if nothing does."""
    if all(one[key] == other[key] for key in _RUN):
        return None
    steps = min(len(one["rows"]), len(other["rows"]))
    per_step = ("rows", "prefill_chunks", "preempted")
    return next((k for k in range(steps) if any(one[key][k] != other[key][k] for key in per_step)), steps)


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    BadInput
        It cannot be read, or is no JSON object.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        reason = getattr(error, "strerror", None) or "is not JSON"
        raise BadInput(Fault(str(file), message=f"cannot be read: {reason}")) from error
    if not isinstance(document, dict):
        raise BadInput(Fault(str(file), given=type(document).__name__, allowed="a JSON object"))
    return document


def write_json(file: Path, document: Mapping[str, Any]) -> None:
    """Write whole or not at all, also when the disk is full or the power goes."""
    beside = file.with_name(f".{file.name}.partial")
    try:
        with beside.open("w", encoding="utf-8") as opened:
            json.dump(document, opened, allow_nan=False)
            opened.flush()
            os.fsync(opened.fileno())
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)

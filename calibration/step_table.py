"""Reading a table of measured step times: a row per system, model, precision, parallelism, phase, batch and context."""

import csv
import gzip
import hashlib
import io
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollsim.traces.errors import BadInput, Fault, closest

TEXT = ("system", "backend", "backend_version", "model", "dtype", "phase")
NUMBERS = ("tp", "batch_size", "context_tokens", "step_ms")
PHASES = ("decode", "prefill")
MAX_FAULTS = 20


class Key(NamedTuple):
    """What was timed: GPU, engine, model, precision of the weights, tensor-parallel size."""

    system: str
    backend: str
    model: str
    dtype: str
    tp: int


@dataclass(frozen=True)
class Rows:
    """Rows of one phase: batch size, context tokens of each sequence, seconds of the step. Arrays of one length."""

    batch: NDArray[np.int64]
    context_tokens: NDArray[np.int64]
    step_s: NDArray[np.float64]

    def where(self, keep: NDArray[np.bool_]) -> "Rows":
        """Keep the rows that are marked."""
        return Rows(self.batch[keep], self.context_tokens[keep], self.step_s[keep])

    @property
    def kv_tokens(self) -> NDArray[np.int64]:
        """KV tokens that the batch holds."""
        return self.batch * self.context_tokens


@dataclass(frozen=True)
class Measured:
    """All rows of one key."""

    version: str
    decode: Rows
    prefill: Rows


@dataclass(frozen=True)
class StepTable:
    """A table and what identifies its file."""

    file: str
    sha256: str
    entries: dict[Key, Measured]


def read_rows(path: Path, text: tuple[str, ...], numbers: tuple[str, ...]) -> list[dict[str, str | float]]:
    """Rows of a CSV file (.gz or not) with the named columns checked: present, and numbers where numbers must stand.

    Raises
    ------
    BadInput
        The file cannot be read, columns are missing, or cells are not positive numbers (the first 20 of them).
    """
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        reader = csv.DictReader(io.StringIO(content.decode("utf-8")))
        raw, names = list(reader), list(reader.fieldnames or [])
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BadInput(Fault(str(path), message=f"cannot be read: {reason}")) from None
    missing = [name for name in (*text, *numbers) if name not in names]
    if missing:
        near = {name: closest(name, set(names)) for name in missing}
        raise BadInput([Fault(str(path), f"column {name}", None, "", near[name], "missing") for name in missing])
    faults: list[Fault] = []
    rows: list[dict[str, str | float]] = []
    for line, row in enumerate(raw, start=2):
        values: dict[str, str | float] = {name: row[name] for name in text}
        for name in numbers:
            try:
                values[name] = float(row[name])
            except (TypeError, ValueError):
                faults.append(Fault(str(path), f"line {line}, {name}", row[name], "a number", message="not a number"))
        rows.append(values)
        if len(faults) >= MAX_FAULTS:
            break
    if faults:
        raise BadInput(faults)
    if not rows:
        raise BadInput(Fault(str(path), message="no rows"))
    return rows


def read_step_table(path: Path) -> StepTable:
    """Read a step-time table; `step_ms` becomes seconds."""
    groups: dict[Key, dict[str, list[tuple[float, float, float]]]] = defaultdict(lambda: {"decode": [], "prefill": []})
    versions: dict[Key, str] = {}
    for line, row in enumerate(read_rows(path, TEXT, NUMBERS), start=2):
        phase, tp = str(row["phase"]), int(row["tp"])
        if phase not in PHASES:
            raise BadInput(Fault(str(path), f"line {line}, phase", phase, ", ".join(PHASES), closest(phase, PHASES)))
        if min(float(row[name]) for name in NUMBERS) <= 0:
            raise BadInput(Fault(str(path), f"line {line}", None, "numbers > 0", message="a number is not positive"))
        key = Key(str(row["system"]), str(row["backend"]), str(row["model"]), str(row["dtype"]), tp)
        groups[key][phase].append((float(row["batch_size"]), float(row["context_tokens"]), float(row["step_ms"]) / 1e3))
        versions[key] = str(row["backend_version"])
    entries = {
        key: Measured(versions[key], _rows(phases["decode"]), _rows(phases["prefill"]))
        for key, phases in groups.items()
    }
    return StepTable(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), entries)


def _rows(values: list[tuple[float, float, float]]) -> Rows:
    array = np.array(sorted(values), dtype=np.float64).reshape(-1, 3)
    return Rows(array[:, 0].astype(np.int64), array[:, 1].astype(np.int64), array[:, 2])

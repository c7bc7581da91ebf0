"""One run folder, or a folder of several: replications of one config under different seeds."""

import os
from collections.abc import Mapping
from pathlib import Path

from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.run import Run, is_run


def open_replications(path: str | os.PathLike[str]) -> list[Run]:
    """Open a run folder, or all that lie directly in a folder, in the order of their names.

    Raises
    ------
    BadInput
        If there is none, or any is damaged; names every fault.
    """
    folder = Path(path)
    if not folder.is_dir() or (folder / "manifest.json").is_file():
        return [Run.open(folder)]
    inside = sorted(entry for entry in folder.iterdir() if entry.is_dir() and is_run(entry))
    if not inside:
        allowed = "a folder that rollsim wrote, or one with such folders in it"
        raise BadInput(Fault(str(folder), message="no run in it", allowed=allowed))
    faults: list[Fault] = []
    runs: list[Run] = []
    for entry in inside:
        try:
            runs.append(Run.open(entry))
        except BadInput as error:
            faults += error.faults
    if faults:
        raise BadInput(faults)
    return runs


def config_differences(a: Mapping[str, object], b: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """Settings that differ, by their path; None where one has no such setting."""
    one, other = _flat(a), _flat(b)
    keys = list(dict.fromkeys([*one, *other]))
    return {key: (one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)}


def _flat(value: object, place: str = "") -> dict[str, object]:
    if not isinstance(value, Mapping) or not value:
        return {place: value}
    found: dict[str, object] = {}
    for key, inner in value.items():
        found |= _flat(inner, f"{place}.{key}" if place else str(key))
    return found

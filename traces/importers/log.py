"""Reads the log of any framework: finds its files, says whose they are, and imports them."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rollsim.traces.errors import BadInput, Fault, closest
from rollsim.traces.importers import areal, nemo_rl, openrlhf, prime_rl, skyrl, slime, trl, verl
from rollsim.traces.importers.draft import Draft, Options
from rollsim.traces.importers.files import LogFile, find_files
from rollsim.traces.importers.imported import ImportedLog, Missing
from rollsim.traces.importers.importer import Importer

IMPORTERS: dict[str, Importer] = {
    module.IMPORTER.name: module.IMPORTER for module in (verl, areal, slime, openrlhf, nemo_rl, prime_rl, skyrl, trl)
}
AUTO = "auto"
_NAMES_SHOWN = 5

Started = Callable[[float], Callable[[float], None]]


def read_log(
    path: str | os.PathLike[str],
    source: str | None = None,
    options: Options | None = None,
    done: Callable[[int], None] | None = None,
) -> ImportedLog:
    """Read the log of a framework.

    Parameters
    ----------
    path
        A log file, or the folder of one run.
    source
        A name in `IMPORTERS`; None or ``auto`` finds out.
    options
        Tokenizer, pickles, columns.
    done
        Told now and then how many more bytes were read; `log_bytes` is their sum, of packed files about.

    Returns
    -------
    ImportedLog
        Tables (`ImportedLog.steps`, `ImportedLog.rollouts`, `ImportedLog.metrics`), what was found, derived and
        missing, and the faults: rows and values that could not be used, each counted.

    Raises
    ------
    BadInput
        If there is no such path, no file of it is a log that is known (it says what was looked for), the source is
        unknown, or the log holds nothing that can be used.
    """
    importer, files = identify(path, source)
    draft = Draft(os.fspath(path), importer.name, options or Options(), done)
    importer.read(files, draft)
    return _finished(draft, importer, files)


def identify(path: str | os.PathLike[str], source: str | None = None) -> tuple[Importer, dict[str, list[LogFile]]]:
    """Return whose log a path is, and its files by kind.

    Raises
    ------
    BadInput
        As `read_log`.
    """
    if source not in (None, AUTO, *IMPORTERS):
        allowed = ", ".join((AUTO, *IMPORTERS))
        raise BadInput(Fault("source", given=source, allowed=allowed, closest=closest(source, IMPORTERS)))
    files = find_files(Path(path))
    tried = list(IMPORTERS.values()) if source in (None, AUTO) else [IMPORTERS[str(source)]]
    claimed: dict[str, dict[str, list[LogFile]]] = {}
    for file in files:
        for importer in tried:
            if kind := importer.claims(file):
                claimed.setdefault(importer.name, {}).setdefault(kind, []).append(file)
                break
    if len(claimed) > 1:
        names = ", ".join(f"{name} ({next(iter(kinds.values()))[0].name})" for name, kinds in claimed.items())
        raise BadInput(Fault(str(path), given=names, allowed="logs of one; name the source", message="logs of several"))
    if not claimed:
        raise BadInput(_unknown(str(path), files, tried))
    (name,) = claimed
    return IMPORTERS[name], claimed[name]


def _unknown(path: str, files: Sequence[LogFile], tried: Sequence[Importer]) -> list[Fault]:
    """Say what was there, and what was looked for."""
    more = f" and {len(files) - _NAMES_SHOWN:,} more" if len(files) > _NAMES_SHOWN else ""
    there = ", ".join(file.name for file in files[:_NAMES_SHOWN]) + more
    whose = f"the log of {tried[0].name}" if len(tried) == 1 else "a log that is known"
    first = Fault(path, given=there, message=f"no file of it is {whose}", allowed="see what was looked for")
    return [first, *(Fault(f"looked for {entry.name}", allowed=" or ".join(entry.looks_for)) for entry in tried)]


def _finished(draft: Draft, importer: Importer, files: dict[str, list[LogFile]]) -> ImportedLog:
    tables = {
        name: rows.table() for name in ("rollouts", "segments", "spans", "gauges") if len(rows := getattr(draft, name))
    }
    if len(draft.steps):
        steps, read = draft.steps.tables(importer.name)
        tables |= steps
        draft.derived += read.derived
        draft.facts |= read.facts
    if not tables:
        faults = draft.damage.faults()
        raise BadInput([Fault(draft.path, message=f"holds nothing of {importer.name} that can be used"), *faults])
    counts = [f"{len(group):,} file{'s' if len(group) > 1 else ''} of kind {kind}" for kind, group in files.items()]
    counts += [f"{len(table):,} rows of {name}" for name, table in tables.items()]
    return ImportedLog(
        draft.path,
        importer.name,
        tables,
        tuple(counts + draft.found),
        tuple(dict.fromkeys(draft.derived)),
        tuple(_missing(importer, tables)),
        draft.damage.faults(),
        draft.damage.count,
        draft.facts,
    )


def _missing(importer: Importer, tables: dict[str, object]) -> list[Missing]:
    missing = []
    for wish in importer.wishes:
        name, _, column = wish.needs.partition(".")
        table = tables.get(name)
        if table is None or (column and table[column].null_count == len(table)):  # type: ignore[index,arg-type]
            missing.append(wish.missing())
    return missing

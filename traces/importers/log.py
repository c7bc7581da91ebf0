"""Reads the log of any framework: finds its files, says whose they are, and imports them."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rollsim.traces.errors import BadInput, Fault, closest
from rollsim.traces.importers import (
    areal,
    guidellm,
    nemo_rl,
    openrlhf,
    plain,
    prime_rl,
    settle,
    skyrl,
    slime,
    trl,
    verl,
    vllm_bench,
)
from rollsim.traces.importers.draft import Draft, Options
from rollsim.traces.importers.files import LogFile, find_files
from rollsim.traces.importers.imported import ImportedLog, Missing
from rollsim.traces.importers.importer import Importer

IMPORTERS: dict[str, Importer] = {
    module.IMPORTER.name: module.IMPORTER
    for module in (verl, areal, slime, openrlhf, nemo_rl, prime_rl, skyrl, trl, vllm_bench, guidellm, plain)
}
AUTO = "auto"
_NAMES_SHOWN = 5


def log_bytes(path: str | os.PathLike[str]) -> int:
    """Return the size of all files of a log [bytes].

    Raises
    ------
    BadInput
        If there is no such path, or no file in it.
    """
    return sum(file.path.stat().st_size for file in find_files(Path(path)))


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
    importer, files, others = identify(path, source, options)
    draft = Draft(os.fspath(path), importer.name, options or Options(), done)
    if others:
        names = ", ".join(file.name for file in others[:_NAMES_SHOWN])
        more = ", ..." if len(others) > _NAMES_SHOWN else ""
        draft.found.append(f"{len(others):,} other files are passed over: {names}{more}")
    importer.read(files, draft)
    return _finished(draft, importer, files)


def identify(
    path: str | os.PathLike[str], source: str | None = None, options: Options | None = None
) -> tuple[Importer, dict[str, list[LogFile]], list[LogFile]]:
    """Return whose log a path is, its files by kind, and the files of no kind.

    Raises
    ------
    BadInput
        As `read_log`.
    """
    if source not in (None, AUTO, *IMPORTERS):
        allowed = ", ".join((AUTO, *IMPORTERS))
        raise BadInput(Fault("source", given=source, allowed=allowed, closest=closest(source, IMPORTERS)))
    files = find_files(Path(path))
    mapped = source == plain.IMPORTER.name and options is not None and options.columns
    tried = list(IMPORTERS.values()) if source in (None, AUTO) else [IMPORTERS[str(source)]]
    claimed: dict[str, dict[str, list[LogFile]]] = {}
    taken: set[LogFile] = set()
    for file in files:
        for importer in tried:
            if kind := plain.claims_any(file) if mapped else importer.claims(file):
                claimed.setdefault(importer.name, {}).setdefault(kind, []).append(file)
                taken.add(file)
                break
        file.forget()
    if len(claimed) > 1:
        names = ", ".join(f"{name} ({next(iter(kinds.values()))[0].name})" for name, kinds in claimed.items())
        raise BadInput(Fault(str(path), given=names, allowed="logs of one; name the source", message="logs of several"))
    if not claimed:
        raise BadInput(_unknown(str(path), files, tried))
    (name,) = claimed
    others = [file for file in files if file not in taken]
    return IMPORTERS[name], claimed[name], others


def _unknown(path: str, files: Sequence[LogFile], tried: Sequence[Importer]) -> list[Fault]:
    """Say what was there, and what was looked for."""
    more = f" and {len(files) - _NAMES_SHOWN:,} more" if len(files) > _NAMES_SHOWN else ""
    there = ", ".join(file.name for file in files[:_NAMES_SHOWN]) + more
    whose = f"the log of {tried[0].name}" if len(tried) == 1 else "a log that is known"
    first = Fault(path, given=there, message=f"no file of it is {whose}", allowed="see what was looked for")
    return [first, *(Fault(f"looked for {entry.name}", allowed=" or ".join(entry.looks_for)) for entry in tried)]


def _finished(draft: Draft, importer: Importer, files: dict[str, list[LogFile]]) -> ImportedLog:
    growing = {name: getattr(draft, name) for name in ("rollouts", "segments", "spans", "gauges")}
    tables = settle.whole_tables(growing, draft.damage)
    zero_s = settle.earliest_s(tables)
    if len(draft.steps):
        steps, read = draft.steps.tables(importer.name, zero_s)
        tables |= steps
        draft.derived += read.derived
        draft.facts |= read.facts
        zero_s = read.facts.get("zero_s", zero_s)
    if zero_s is not None:
        tables = settle.counted_from(tables, zero_s)
        draft.facts["zero_s"] = zero_s
    if not any(map(len, tables.values())):
        first = Fault(draft.path, message=f"holds nothing of {importer.name} that can be used")
        raise BadInput([first, *draft.damage.faults()])
    if "rollouts" in tables:
        tables["rollouts"] = settle.truncations(tables["rollouts"], draft)
    counts = [
        "files: " + ", ".join(f"{len(group):,} {kind}" for kind, group in files.items()),
        "rows: " + ", ".join(f"{len(table):,} {name}" for name, table in tables.items()),
    ]
    return ImportedLog(
        draft.path,
        importer.name,
        tables,
        (*counts, *draft.found),
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

"""What `rollsim doctor` looks at. Each examination gives findings and never raises."""

import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

OLDEST_PYTHON = (3, 11)
NEEDED_DISK_BYTES = 200 * 2**20
_IMPORT_NAMES = {"pyyaml": "yaml"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Parameters
    ----------
    name
        What it is.
    found
        What was found, for people.
    ok
        False if rollsim cannot work like this.
    value
        What was found, for programs; the text if None.
    """

    name: str
    found: str
    ok: bool = True
    value: object = None

    def document(self) -> dict[str, object]:
        """Return it as JSON."""
        return {"ok": self.ok, "found": self.found if self.value is None else self.value}


def examine() -> list[Finding]:
    """Look at everything."""
    core, extras = _requirements()
    return [
        _python(),
        Finding("rollsim", version("rollsim")),
        *map(_dependency, core),
        *(_extra(extra, names) for extra, names in extras.items()),
        *_examined("kernel", _kernel),
        *_examined("profiles", _profiles),
        *_examined("CPUs", _cpus),
        *_examined("GPU", _gpu),
        *_examined("disk", _free_disk),
    ]


def _examined(name: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    try:
        return list(look())
    except Exception as error:  # noqa: BLE001 - whatever is wrong with an installation is a finding, not a crash
        return [Finding(name, f"cannot be examined: {type(error).__name__}: {error}"[:300], ok=False)]


def _python() -> Finding:
    oldest = ".".join(map(str, OLDEST_PYTHON))
    ok = sys.version_info >= OLDEST_PYTHON
    found = f"{platform.python_version()}, {sys.executable}" + ("" if ok else f"; needs {oldest} or newer")
    return Finding("Python", found, ok)


def _requirements() -> tuple[list[str], dict[str, list[str]]]:
    """Return the names of what rollsim depends on, and of what each extra adds."""
    core: list[str] = []
    extras: dict[str, list[str]] = {}
    for requirement in requires("rollsim") or []:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", requirement)
        if name is None or name[0] == "rollsim":
            continue
        (extras.setdefault(extra[1], []) if extra else core).append(name[0].lower())
    return core, extras


def _dependency(name: str) -> Finding:
    try:
        importlib.import_module(_IMPORT_NAMES.get(name, name))
        return Finding(name, version(name))
    except PackageNotFoundError:
        return Finding(name, f"not installed; run: pip install {name}", ok=False)
    except Exception as error:  # noqa: BLE001 - a broken package may raise anything at import, and that is the finding
        return Finding(name, f"cannot be imported: {type(error).__name__}: {error}"[:300], ok=False)


def _extra(extra: str, names: list[str]) -> Finding:
    versions = {name: _version_or_none(name) for name in names}
    absent = [name for name, found in versions.items() if found is None]
    found = f"missing {', '.join(absent)}; run: pip install 'rollsim[{extra}]'" if absent else "installed"
    return Finding(f"extra {extra}", found, value=versions)


def _version_or_none(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _kernel() -> Iterator[Finding]:
    """Tell whether the kernel is compiled, and whether its cache can be written."""
    from rollsim.simulator.kernel import ENTRY_POINTS, cache_state

    states = {work: cache_state(work) for work in ENTRY_POINTS}
    folder = Path(str(states["run"]["folder"]))
    absent = [work for work, state in states.items() if not state["compiled"]]
    ready = f"not compiled yet for: {', '.join(absent)}; the first use does it" if absent else "compiled"
    value = {"compiled": not absent, "not_compiled": absent, "folder": str(folder)}
    yield Finding("kernel", f"{ready}; cache {folder}", value=value)
    place = _nearest_existing(folder)
    try:
        with tempfile.TemporaryFile(dir=place):
            yield Finding("kernel cache", "writable", value="writable")
    except OSError as error:
        advice = "set ROLLSIM_CACHE_DIR to a folder that can be written"
        yield Finding("kernel cache", f"{place} is not writable ({error.strerror}); {advice}", ok=False)


def _nearest_existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.absolute().parents) if place.is_dir())


def _profiles() -> Iterator[Finding]:
    from rollsim.simulator.profile_store import list_profiles

    count = len(list_profiles())
    yield Finding("profiles", f"{count} shipped; see: rollsim profiles list", ok=count > 0, value=count)


def _cpus() -> Iterator[Finding]:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("CPUs", str(count), value=count)


def _gpu() -> Iterator[Finding]:
    """Name the GPUs; none are needed to simulate."""
    program = shutil.which("nvidia-smi")
    gpus: list[str] = []
    if program is not None:
        query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
        gpus = answer.stdout.strip().splitlines() if answer.returncode == 0 else []
    yield Finding("GPU", "; ".join(gpus) or "none found, none needed", value=gpus)


def _free_disk() -> Iterator[Finding]:
    free_bytes = shutil.disk_usage(Path.cwd()).free
    ok = free_bytes >= NEEDED_DISK_BYTES
    text = f"{free_bytes / 2**30:.1f} GiB free here" + ("" if ok else f"; needs {NEEDED_DISK_BYTES / 2**20:.0f} MiB")
    yield Finding("disk", text, ok, value=free_bytes)

"""Where the compiled kernel is kept: once per machine and per version of the kernel's source. Imports no numba."""

import hashlib
import os
import sys
from importlib.metadata import version
from pathlib import Path


def cache_dir() -> Path:
    """Folder of the compiled kernel, named by a hash of its sources.

    numba looks only at the file that defines a function, so an edit of a callee in
    another file would leave a stale caller behind; the hash covers them all.
    """
    own, shared = os.environ.get("ROLLSIM_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    root = Path(own) if own else Path(shared or Path.home() / ".cache") / "rollsim"
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    return root / f"kernel-{version('numba')}-{digest.hexdigest()[:12]}"


def cache_state() -> dict[str, bool | str]:
    """Whether the kernel is ready on this machine.

    Returns
    -------
    dict
        ``compiled``: whether this Python finds it compiled; ``folder``: where it is, or will be, kept.
    """
    folder = cache_dir()
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return {"compiled": any(folder.glob(f"*/loop.run-*.{python}*.nbi")), "folder": str(folder)}


def compile_notice() -> str | None:
    """One line for the user before a first run that will compile, else None.

    The library never prints: who talks to the user asks for this before the first replica runs.
    """
    state = cache_state()
    if state["compiled"] or os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return None
    return f"compiling the simulation kernel, once on this machine, about a minute (kept in {state['folder']})"

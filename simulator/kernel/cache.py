"""Where the compiled kernel is kept: once per machine and per version of the kernel's source. Imports no numba."""

import hashlib
import os
import sys
from importlib.metadata import version
from pathlib import Path

# What Python calls of the kernel, by the kind of work that calls it: a trace on replicas that run alone, recordings
# step by step, a config.
ENTRY_POINTS = {
    "replay": ("loop.feed",),
    "recordings": (
        "loop.run", "touches.enqueue", "touches.take_out", "touches.preempt_all", "touches.set_rate",
        "decode.output_tokens", "decode.computed_tokens",
    ),
    "run": (
        "fleet_touches.touch", "fleet_touches.start", "fleet_touches.take_out", "fleet_touches.progress",
        "fleet_touches.set_rates", "fleet_touches.pause", "fleet_touches.swap", "fleet_looks.foresee",
        "fleet_looks.last_end_s", "fleet_looks.collect_foreseen", "fleet_looks.collect", "fleet_looks.next_ends",
        "groups.begin", "groups.count_off", "groups.rewarded_s", "groups.foreseen_s", "groups.finals",
        "groups.oldest_under_way",
    ),
}  # fmt: skip


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


def cache_state(work: str) -> dict[str, bool | str]:
    """Whether the kernel is ready on this machine for a kind of work.

    Returns
    -------
    dict
        ``compiled``: whether this Python finds all compiled that the work calls; ``folder``: where that is, or will be,
        kept.
    """
    folder = cache_dir()
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    compiled = all(any(folder.glob(f"*/{name}-*.{python}*.nbi")) for name in ENTRY_POINTS[work])
    return {"compiled": compiled, "folder": str(folder)}


def compile_notice(work: str) -> str | None:
    """One line for the user before a first run that will compile, else None.

    The library never prints: who talks to the user asks for this before the first replica runs.
    """
    state = cache_state(work)
    if state["compiled"] or os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return None
    return f"compiling the kernel for `{work}`, once on this machine: a minute or two (kept in {state['folder']})"

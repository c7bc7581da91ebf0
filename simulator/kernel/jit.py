"""The compiler switch of the kernel: numba, cached once per machine and per version of the kernel's source."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

_SOURCES = sorted(Path(__file__).parent.glob("*.py"))

# Narrow record fields are widened where they become an argument: one signature, one compilation of each function.
i64 = np.int64


def cache_dir() -> Path:
    """Folder of the compiled kernel, named by a hash of its sources.

    numba looks only at the file that defines a function, so an edit of a callee in
    another file would leave a stale caller behind; the hash covers them all.
    """
    own, shared = os.environ.get("ROLLSIM_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    root = Path(own) if own else Path(shared or Path.home() / ".cache") / "rollsim"
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES))
    return root / f"kernel-{numba.__version__}-{digest.hexdigest()[:12]}"


_CACHE_DIR = cache_dir()


def jit(function: Callable[..., Any]) -> Any:
    """``numba.njit`` with the kernel's own cache folder; plain Python under ``NUMBA_DISABLE_JIT=1``."""
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(_CACHE_DIR)  # type: ignore[attr-defined]
    try:
        return numba.njit(cache=True, error_model="numpy")(function)
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]

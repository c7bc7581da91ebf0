"""The compiler switch of the kernel: numba, with its results cached."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from rollsim.simulator.kernel.cache import cache_dir

# Narrow record fields are widened where they become an argument: one signature, one compilation of each function.
i64 = np.int64

_CACHE_DIR = cache_dir()


def jit(function: Callable[..., Any]) -> Any:
    """Compile, with the kernel's own cache folder; plain Python under ``NUMBA_DISABLE_JIT=1``.

    Without reference counts (``_nrt``): the kernel allocates nothing, its caller holds the state, and counting took
    most of the time.
    """
    return _compile(function, forceinline=False)


def inline(function: Callable[..., Any]) -> Any:
    """`jit`, inlined wherever it is called: a call would pass the state as some hundred words."""
    return _compile(function, forceinline=True)


def _compile(function: Callable[..., Any], *, forceinline: bool) -> Any:
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(_CACHE_DIR)  # type: ignore[attr-defined]
    try:
        options: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False, "forceinline": forceinline}
        return numba.njit(**options)(function)
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]


def bind(function: Any, *arguments: Any) -> Callable[..., Any]:
    """What `function` was compiled to for arguments of the types of these.

    Called so, numba does not look at the type of every array first, which takes longer than a short call; types other
    than these are not noticed, so bind only where they cannot change.
    """
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    signature = tuple(numba.typeof(argument) for argument in arguments)
    function.compile(signature)
    return function.get_overload(signature)

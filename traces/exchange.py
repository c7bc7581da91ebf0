"""Two folders change places in one step, so that neither is ever missing."""

import ctypes
import os
import sys
from pathlib import Path

_LINUX_EXCHANGE = 2
_MACOS_SWAP = 2
_AT_FDCWD = -100


def exchange(one: Path, other: Path) -> bool:
    """Swap what stands at two paths of one file system; False if this system or file system cannot.

    Python has no call for it: Linux has ``renameat2`` with ``RENAME_EXCHANGE``, macOS ``renamex_np`` with
    ``RENAME_SWAP``.
    """
    names = os.fsencode(one), os.fsencode(other)
    try:
        libc = ctypes.CDLL(None)
        if sys.platform == "darwin":
            return libc.renamex_np(*names, _MACOS_SWAP) == 0
        return libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _LINUX_EXCHANGE) == 0
    except (OSError, TypeError, AttributeError):
        return False

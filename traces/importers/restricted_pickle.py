"""Opens a pickle without running what is in it: plain values alone, tensors as nothing.

`torch.save` writes a zip file with a ``data.pkl``; an older or plain pickle is one file. Every name in it that is not
one of a few harmless ones is refused, so that no code of the file or of any package is called.
"""

import io
import pickle
import zipfile
from collections import OrderedDict
from typing import Any

_LARGEST = 1 << 34


class _Nothing:
    """Stands for a tensor, its storage, or a class that only tensors need."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __setstate__(self, _: object) -> None:
        pass


def _nothing(*_: object, **__: object) -> _Nothing:
    return _Nothing()


_ALLOWED: dict[tuple[str, str], Any] = {("collections", "OrderedDict"): OrderedDict}
_TENSOR_PARTS = ("torch", "torch._utils", "torch.storage", "torch._tensor", "numpy", "numpy.core.multiarray",
                 "numpy._core.multiarray", "_codecs")  # fmt: skip


class _Restricted(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) in _ALLOWED:
            return _ALLOWED[module_name, global_name]
        if module_name in _TENSOR_PARTS:
            return _Nothing if global_name[:1].isupper() else _nothing
        raise pickle.UnpicklingError(f"it names {module_name}.{global_name}, which is not opened")

    def persistent_load(self, pid: Any, /) -> Any:  # noqa: ARG002 - given by the base class
        return _Nothing()


def load_plain(data: bytes) -> object:
    """Return what a pickle, or a file of `torch.save`, holds.

    Raises
    ------
    ValueError
        If it is damaged, or holds more than plain values and tensors.
    """
    try:
        if zipfile.is_zipfile(io.BytesIO(data)):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                names = [entry for entry in archive.infolist() if entry.filename.endswith("data.pkl")]
                if not names:
                    raise ValueError("no data.pkl in it")
                if names[0].file_size > _LARGEST:
                    raise ValueError("too large")
                data = archive.read(names[0])
        return _Restricted(io.BytesIO(data), encoding="utf-8").load()
    except ValueError:
        raise
    except Exception as error:
        raise ValueError((str(error).splitlines() or [type(error).__name__])[0][:200]) from error

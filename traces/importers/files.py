"""The files of a log folder, and what the beginning of each looks like."""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from rollsim.traces.errors import BadInput, Fault, closest

# A first line may hold a whole response as text.
_LONGEST_LINE = 1 << 23
_HEAD = 1 << 16
_LONGEST_DOCUMENT = 1 << 26
_LINES_TRIED = 5
_MOST_FILES = 200_000
_KEY = re.compile(r'"([\w./-]+)"\s*:')


@dataclass(frozen=True)
class LogFile:
    """A file of a log.

    Parameters
    ----------
    path
        Where it is.
    name
        Its path below the log's folder, for messages.
    """

    path: Path
    name: str

    @property
    def suffix(self) -> str:
        """Its suffix without ``.gz``, in small letters."""
        return Path(self.path.name.lower().removesuffix(".gz")).suffix

    @property
    def stem(self) -> str:
        """Its name without folder and suffixes."""
        return self.path.name.lower().removesuffix(".gz").removesuffix(self.suffix)

    def open(self) -> IO[bytes]:
        """Open it for reading, unpacked."""
        return gzip.open(self.path) if self.path.name.lower().endswith(".gz") else self.path.open("rb")  # type: ignore[return-value]

    @cached_property
    def head(self) -> list[bytes]:
        """Its first lines that hold anything, each cut off where it gets too long."""
        lines: list[bytes] = []
        try:
            with self.open() as file:
                for _ in range(4 * _LINES_TRIED):
                    line = file.readline(_LONGEST_LINE if not lines else _HEAD)
                    if line.strip():
                        lines.append(line)
                    if not line or len(lines) == _LINES_TRIED:
                        break
        except (OSError, EOFError, zlib.error):
            pass
        return lines

    @cached_property
    def objects(self) -> list[dict[str, object]]:
        """Those of its first lines that are JSON objects; of a ``.json`` file the whole, if it is one."""
        values = [_parsed(line) for line in self.head]
        if self.suffix == ".json" and not any(isinstance(value, dict) for value in values):
            try:
                with self.open() as file:
                    values = [_parsed(file.read(_LONGEST_DOCUMENT))]
            except (OSError, EOFError, zlib.error):
                values = []
        return [value for value in values if isinstance(value, dict)]

    def object_with(self, *keys: str) -> dict[str, object] | None:
        """The first of `objects` that has these keys."""
        return next((value for value in self.objects if all(key in value for key in keys)), None)

    @cached_property
    def keys(self) -> frozenset[str]:
        """Keys of all `objects`; if there is none, all keys that can be seen in its beginning."""
        if self.objects:
            return frozenset(key for value in self.objects for key in value)
        text = b"".join(self.head)[:_HEAD].decode("utf-8", "replace")
        return frozenset(_KEY.findall(text)) if text.lstrip()[:1] in ("{", "[") else frozenset()

    def forget(self) -> None:
        """Let go of its beginning: a log may have very many files."""
        for name in ("head", "objects", "keys", "header"):
            self.__dict__.pop(name, None)

    @cached_property
    def header(self) -> tuple[str, ...]:
        """Column names of a CSV file."""
        text = self.head[0].decode("utf-8", "replace") if self.head and self.suffix == ".csv" else ""
        return tuple(name.strip().strip('"').lstrip("\ufeff") for name in text.strip().split(",")) if text else ()


def find_files(path: Path) -> list[LogFile]:
    """Return the files below a folder in natural order (``2`` before ``10``), or the one file.

    Raises
    ------
    BadInput
        If there is no such path, it cannot be read, or it holds no file or far too many.
    """
    try:
        if path.is_file():
            path.open("rb").close()
            return [LogFile(path, path.name)]
        if not path.is_dir():
            beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
            raise BadInput(
                Fault(str(path), message="there is no such file or folder", closest=closest(path.name, beside))
            )
        found = [LogFile(file, str(file.relative_to(path))) for file in _walk(path)]
    except OSError as error:
        raise BadInput(Fault(str(path), message=f"cannot be read: {error.strerror}")) from error
    if not found:
        raise BadInput(Fault(str(path), message="is an empty folder", allowed="a folder with a log in it"))
    return sorted(found, key=lambda file: _natural(file.name))


def _parsed(text: bytes) -> object:
    try:
        return json.loads(text.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None


def _walk(folder: Path) -> Iterator[Path]:
    for count, file in enumerate(file for file in folder.rglob("*") if file.is_file()):
        if count >= _MOST_FILES:
            allowed = f"at most {_MOST_FILES:,}; name the folder of one run"
            raise BadInput(Fault(str(folder), message="holds too many files", allowed=allowed))
        if not any(part.startswith(".") for part in file.relative_to(folder).parts):
            yield file


def _natural(name: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", name) if part]

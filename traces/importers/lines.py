"""Log files line by line: what cannot be read is counted, and the rest goes on."""

import json
import zlib
from collections.abc import Callable, Iterator

from rollsim.traces.importers.damage import Damage
from rollsim.traces.importers.files import LogFile

LONGEST_LINE = 1 << 28
_REPORT_BYTES = 1 << 20
_NO_LINE = "one JSON object in each line"


def text_lines(file: LogFile, damage: Damage, done: Callable[[int], None] | None = None) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines, undecodable bytes replaced and counted, empty lines passed over.

    Parameters
    ----------
    file
        The file.
    damage
        Where faults are counted.
    done
        Told now and then how many bytes were read since it was told last.
    """
    told = 0
    try:
        with file.open() as stream:
            number = 0
            while line := stream.readline(LONGEST_LINE):
                number += 1
                told += len(line)
                if done and told >= _REPORT_BYTES:
                    done(told)
                    told = 0
                if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                    damage.add("a line is too long, and is left out", f"{file.name} line {number}")
                    while (rest := stream.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                        pass
                    continue
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError:
                    text = line.decode("utf-8", "replace")
                    damage.add("not UTF-8; the bytes are replaced", f"{file.name} line {number}", allowed="UTF-8")
                if number == 1:
                    text = text.removeprefix("\ufeff")
                if text.strip():
                    yield number, text
    except (OSError, EOFError, zlib.error) as error:
        damage.add("cannot be read to its end; what comes after is left out", file.name, _first_line(error))
    if done:
        done(told)


def json_lines(
    file: LogFile, damage: Damage, done: Callable[[int], None] | None = None
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the place and the object of each line; lines that are not JSON objects are counted and left out."""
    empty = True
    for number, text in text_lines(file, damage, done):
        empty = False
        place = f"{file.name} line {number}"
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            cut = not text.endswith("\n")
            what = "the last line is cut off, and is left out" if cut else "a line is not JSON, and is left out"
            damage.add(what, place, _first_line(error), _NO_LINE)
            continue
        if isinstance(value, dict):
            yield place, value
        else:
            damage.add("a line is not a JSON object, and is left out", place, type(value).__name__, _NO_LINE)
    if empty:
        damage.add("an empty file", file.name)


def whole_json(file: LogFile, damage: Damage, done: Callable[[int], None] | None = None) -> object:
    """Return the JSON document that a file is; None, counted, if it is none."""
    try:
        with file.open() as stream:
            data = stream.read()
    except (OSError, EOFError, zlib.error) as error:
        damage.add("cannot be read, and is left out", file.name, _first_line(error))
        return None
    if done:
        done(len(data))
    if not data.strip():
        damage.add("an empty file", file.name)
        return None
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        damage.add("not JSON, or cut off; the file is left out", file.name, _first_line(error), "a JSON document")
        return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]

"""Step metrics that frameworks print: ``step:3 - a:1.0 - b:2.0`` and ``perf 3: {'a': 1.0}``."""

import ast
import re
import zlib
from collections.abc import Iterator

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.lines import text_lines

_STEP = re.compile(r"(?:^|[\s)\]])step:(\d+) - (?=\S+:)")
_PAIR = re.compile(
    r"(\S+?):(?:np\.\w+\()?([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf))\)?$", re.IGNORECASE
)
_DICT = re.compile(r"(?:^|[\s\]])(Global step|perf|rollout) (\d+): (\{.*)$")
_NUMPY = re.compile(r"(?:np|numpy)\.\w+\(([^()]*)\)|tensor\(([^(),]*)(?:,[^()]*)?\)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST_DICT = 1 << 18
# Training may begin late in a log; Ray prints much before.
_SEARCHED = 1 << 25

PAIRS, DICTS, GLOBAL_DICTS = "pairs", "dicts", "global dicts"


def console_kind(file: LogFile) -> str | None:
    """Tell which of the ways to print a text file holds, from its first megabytes."""
    if file.suffix not in (".log", ".txt", ".out", ".err", ""):
        return None
    for text in _beginning(file):
        if _STEP.search(text):
            return PAIRS
        if (found := _DICT.search(text)) and "'" in found[3]:
            return GLOBAL_DICTS if found[1] == "Global step" else DICTS
    return None


def read_pairs(file: LogFile, draft: Draft) -> None:
    """Read ``step:3 - a:1.0 - b:2.0``, with whatever stands before it in the line."""
    for number, line in text_lines(file, draft.damage, draft.done):
        text = _COLOUR.sub("", line).rstrip()
        found = _STEP.search(text)
        if not found:
            continue
        place = f"{file.name} line {number}"
        parts = text[found.end() :].split(" - ")
        pairs = [_PAIR.fullmatch(part.strip()) for part in parts]
        if pairs[-1] is None and not line.endswith("\n"):
            draft.damage.add("the last line is cut off; its metrics up to there are used", place, parts[-1])
        draft.steps.add(int(found[1]), {pair[1]: float(pair[2]) for pair in pairs if pair}, place)


def read_dicts(file: LogFile, draft: Draft) -> None:
    """Read ``Global step 3: {...}``, ``perf 3: {...}`` and ``rollout 3: {...}``.

    slime's ``step 3: {...}`` is an optimizer step; these are counted apart from rollouts, and passed over.
    """
    for number, line in text_lines(file, draft.damage, draft.done):
        found = _DICT.search(_COLOUR.sub("", line).rstrip())
        if not found:
            continue
        place = f"{file.name} line {number}"
        text = _NUMPY.sub(lambda match: match[1] or match[2] or "None", found[3])
        values = _literal(re.sub(r"(?<=[ :,\[])-?(?:nan|inf)\b", "None", text))
        if values is None:
            what = "a printed record is cut off or no dictionary, and is left out"
            draft.damage.add(what, place, found[3], "a dictionary of numbers")
            continue
        draft.steps.add(int(found[2]), {str(name): value for name, value in values.items()}, place)


def _literal(text: str) -> dict[object, object] | None:
    if len(text) > _LONGEST_DICT:
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return value if isinstance(value, dict) else None


def _beginning(file: LogFile) -> Iterator[str]:
    try:
        with file.open() as stream:
            read = 0
            while (line := stream.readline(1 << 20)) and read < _SEARCHED and b"\0" not in line:
                read += len(line)
                yield _COLOUR.sub("", line.decode("utf-8", "replace")).rstrip()
    except (OSError, EOFError, zlib.error):
        return

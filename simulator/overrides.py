"""``a.b=value`` words from a command line, laid over a config document."""

from collections.abc import Sequence
from typing import Any

import yaml

from rollsim.traces.errors import BadInput, Fault

FORM = "section.key=value, as train.steps=10"


def with_overrides(document: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return the document with some values replaced; the document itself is left alone.

    Parameters
    ----------
    document : dict
        Nested sections.
    words : sequence of str
        ``a.b=value``; the value is YAML, later words win. A number picks an entry of a list, from 0. Sections that are
        missing are made; whether a key exists is for the validation of the whole to say. The name of a policy that
        stands alone becomes its ``use``.

    Raises
    ------
    BadInput
        Every word without a key or an equals sign, with a value that is not YAML, that goes through a plain value, or
        past the end of a list.
    """
    made = _copy(document)
    faults = [fault for word in words if (fault := _apply(made, word)) is not None]
    if faults:
        raise BadInput(faults)
    return made


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _apply(document: dict[str, Any], word: str) -> Fault | None:
    path, equals, text = word.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        return Fault("override", given=word, allowed=FORM, message="not of the form")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return Fault("override", path, text, "a YAML value", message="cannot be read")
    section: Any = document
    for depth, written in enumerate(keys):
        place = ".".join(keys[:depth])
        if isinstance(section, list):
            if not written.isdecimal() or int(written) >= len(section):
                allowed = f"0 to {len(section) - 1}" if section else "a whole list, as [...]"
                return Fault("override", path, text, allowed, message=f"{place} has {len(section)} entries")
        elif not isinstance(section, dict):
            return Fault("override", path, text, message=f"{place} is not a section")
        key: Any = int(written) if isinstance(section, list) else written
        if depth == len(keys) - 1:
            section[key] = value
            break
        if isinstance(section, dict):
            section.setdefault(key, {})
        alone = isinstance(section[key], str) and keys[0] == "policies"
        if alone and (depth == 1 or isinstance(section, list)):
            section[key] = {"use": section[key]}
        section = section[key]
    return None

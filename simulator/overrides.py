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
        ``a.b=value``; the value is YAML, later words win. Sections that are missing are made; whether a key exists is
        for the validation of the whole to say. The name of a policy that stands alone becomes its ``use``.

    Raises
    ------
    BadInput
        Every word without a key or an equals sign, with a value that is not YAML, or that goes through a plain value.
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
    section: dict[str, Any] = document
    for depth, key in enumerate(keys[:-1]):
        inner = section.setdefault(key, {})
        if isinstance(inner, str) and keys[0] == "policies" and depth == 1:
            inner = section[key] = {"use": inner}
        if not isinstance(inner, dict):
            message = f"{'.'.join(keys[: depth + 1])} is not a section"
            return Fault("override", path, text, message=message)
        section = inner
    section[keys[-1]] = value
    return None

"""Reads a JSON or YAML document into a pydantic model; every fault comes with its path in the document."""

import json
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from rollsim.traces.errors import BadInput, Fault, closest

SUFFIXES = (".json", ".yaml", ".yml")

M = TypeVar("M", bound=BaseModel)


def read_document(path: Path, kind: type[M], schema_version: int) -> M:
    """Read a document from a file; its suffix says whether it is JSON or YAML.

    Raises
    ------
    BadInput
        An unreadable file (with the closest of its folder), or every fault of the document.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        siblings = [str(other) for other in path.parent.glob("*") if other.suffix in SUFFIXES]
        raise BadInput(Fault(str(path), closest=closest(path, siblings), message="no such file")) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(Fault(str(path), message=f"cannot be read: {error}")) from None
    return parse_document(text, str(path), kind, schema_version, as_json=path.suffix == ".json")


def parse_document(text: str, file: str, kind: type[M], schema_version: int, *, as_json: bool = True) -> M:
    """Parse the text of a document; `file` is what errors name."""
    data = _load(text, file, as_json)
    if not isinstance(data, dict):
        raise BadInput(Fault(file, "$", type(data).__name__, "an object", message="not a document"))
    if data.get("schema_version") != schema_version:
        given = data.get("schema_version")
        message = "missing" if given is None else "unknown schema version"
        raise BadInput(Fault(file, "$.schema_version", given, str(schema_version), message=message))
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise BadInput([_fault(file, kind, fault) for fault in error.errors(include_url=False)]) from None


def _load(text: str, file: str, as_json: bool) -> object:
    try:
        return json.loads(text) if as_json else yaml.safe_load(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadInput(Fault(file, place, message=f"not JSON: {error.msg}")) from None
    except RecursionError:
        raise BadInput(Fault(file, message="nested too deeply")) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise BadInput(Fault(file, place, message=f"not YAML: {getattr(error, 'problem', error)}")) from None


def _fault(file: str, kind: type[BaseModel], error: Any) -> Fault:
    location: tuple[str | int, ...] = error["loc"]
    place = "$" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in location)
    if error["type"] == "missing":
        return Fault(file, place, message="missing")
    if error["type"] == "extra_forbidden":
        known = _keys(kind, location[:-1])
        return Fault(file, place, None, ", ".join(known), closest(location[-1], known), "unknown key")
    given = error["input"]
    message = error["msg"].removeprefix("Value error, ")
    shown = given if isinstance(given, str | int | float | bool) else None
    near = None
    if error["type"] == "literal_error" and isinstance(given, str):
        near = closest(given, [word.strip("'") for word in error["ctx"]["expected"].replace(" or ", ", ").split(", ")])
    return Fault(file, place, shown, closest=near, message=message)


def _keys(kind: Any, path: tuple[str | int, ...]) -> list[str]:
    """Keys that the object at a path may hold."""
    for key in path:
        if isinstance(key, str) and isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[key].annotation
        inner = [arg for arg in get_args(kind) if isinstance(arg, type) and issubclass(arg, BaseModel)]
        kind = inner[0] if inner else kind
    return list(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else []

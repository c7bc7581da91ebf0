"""Reads a JSON or YAML document into a pydantic model; every fault comes with its path in the document."""

import json
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from rollsim.simulator.model_faults import model_faults
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
        raise BadInput(model_faults(error, kind, file, "$")) from None


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

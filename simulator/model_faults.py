"""What pydantic found wrong with a document, as faults with the path of each and the closest allowed name."""

from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from rollsim.traces.errors import Fault, closest


def model_faults(error: ValidationError, model: type[BaseModel], file: str, root: str = "") -> list[Fault]:
    """Return a fault for each error.

    Parameters
    ----------
    error : ValidationError
    model : type
        What was validated.
    file : str
        What the faults name.
    root : str
        What paths begin with: ``$`` for JSON paths.
    """
    return [_fault(file, fault, model, root) for fault in error.errors(include_url=False)]


def _fault(file: str, error: Any, model: type[BaseModel], root: str) -> Fault:
    location: tuple[str | int, ...] = error["loc"]
    place = root + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in location)
    place = place.removeprefix(".")
    if error["type"] == "missing":
        return Fault(file, place, message="missing")
    if error["type"] == "extra_forbidden":
        known = _keys(location[:-1], model)
        return Fault(file, place, None, ", ".join(known), closest(location[-1], known), "unknown key")
    given = error["input"]
    message = error["msg"].removeprefix("Value error, ")
    shown = given if isinstance(given, str | int | float | bool) else None
    near = None
    if error["type"] == "literal_error" and isinstance(given, str):
        near = closest(given, [word.strip("'") for word in error["ctx"]["expected"].replace(" or ", ", ").split(", ")])
    return Fault(file, place, shown, closest=near, message=message)


def _keys(location: tuple[str | int, ...], model: type[BaseModel]) -> list[str]:
    """Keys that the object at a path may hold."""
    kind: Any = model
    for key in location:
        if isinstance(key, str) and isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[key].annotation
        inner = [arg for arg in get_args(kind) if isinstance(arg, type) and issubclass(arg, BaseModel)]
        kind = inner[0] if inner else kind
    return list(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else []

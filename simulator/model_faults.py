"""What pydantic found wrong with a document, as faults with the path of each and the closest allowed name."""

from typing import Any, get_args, get_origin

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
    if location[-1] == "[key]":
        place = root + "".join(f".{key}" for key in location[:-1])
        known = _expected(error)
        return Fault(file, place.removeprefix("."), None, ", ".join(known), closest(location[-2], known), "unknown key")
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
        near = closest(given, _expected(error))
    return Fault(file, place, shown, closest=near, message=message)


def _expected(error: Any) -> list[str]:
    """Words that a literal allows."""
    return [word.strip("'") for word in error["ctx"]["expected"].replace(" or ", ", ").split(", ")]


def _keys(location: tuple[str | int, ...], model: type[BaseModel]) -> list[str]:
    """Keys that the object at a path may hold."""
    kind: Any = model
    for key in location:
        kind = _at(kind, key)
    return next((list(part.model_fields) for part in (kind, *get_args(kind)) if _is_model(part)), [])


def _at(kind: Any, key: str | int) -> Any:
    """Return the type of what stands at a key of an object, mapping or list of this type; None if it is not known."""
    if _is_model(kind):
        return kind.model_fields[key].annotation if key in kind.model_fields else None
    args = get_args(kind)
    if get_origin(kind) is dict:
        return args[1]
    if get_origin(kind) in (list, tuple):
        return args[0]
    return next((found for part in args if (found := _at(part, key)) is not None), None)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)

"""What pydantic found wrong with a document, as faults with the path of each and the closest allowed name."""

from typing import Any, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError

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
    location, holder = _located(error["loc"], model)
    if location and location[-1] == "[key]":
        place = root + "".join(f".{key}" for key in location[:-1])
        known = _expected(error)
        near = closest(str(location[-2]), known)
        return Fault(file, place.removeprefix("."), None, ", ".join(known), near, "unknown key")
    place = root + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in location)
    place = place.removeprefix(".")
    if error["type"] == "missing":
        return Fault(file, place, message="missing")
    if error["type"] == "extra_forbidden":
        known = [] if holder is None else list(holder.model_fields)
        return Fault(file, place, None, ", ".join(known), closest(str(location[-1]), known), "unknown key")
    if error["type"] in ("model_type", "dict_type") and holder is not None:
        shown = error["input"] if isinstance(error["input"], str | int | float) else type(error["input"]).__name__
        return Fault(file, place, shown, "key: value", message="not a section of settings")
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


def _located(location: tuple[str | int, ...], model: type[BaseModel]) -> tuple[list[str | int], type[BaseModel] | None]:
    """Path as the user wrote it, without pydantic's names for the members of a union, and the model its end is in."""
    path: list[str | int] = []
    kind: Any = model
    holder: type[BaseModel] | None = model
    for key in location:
        if key in _tags(kind):
            continue
        path.append(key)
        holder = _model_in(kind)
        kind = _at(kind, key)
    return path, holder


def _tags(kind: Any) -> list[str]:
    return [part.tag for member in get_args(kind) for part in get_args(member) if isinstance(part, Tag)]


def _model_in(kind: Any) -> type[BaseModel] | None:
    """The model of an annotation, be it the model, or one of several things that may stand there."""
    return next((part for part in _parts(kind) if isinstance(part, type) and issubclass(part, BaseModel)), None)


def _parts(kind: Any) -> list[Any]:
    """What may stand in a place: itself, or the members of a union."""
    if get_origin(kind) in (dict, list, tuple) or isinstance(kind, type):
        return [kind]
    return [found for part in get_args(kind) for found in _parts(part)]


def _at(kind: Any, key: str | int) -> Any:
    """Return the type of what stands at a key of an object, mapping or list of this type; None if it is not known."""
    for part in _parts(kind):
        if get_origin(part) is dict:
            return get_args(part)[1]
        if get_origin(part) in (list, tuple):
            return get_args(part)[0]
        if isinstance(part, type) and issubclass(part, BaseModel) and key in part.model_fields:
            return part.model_fields[str(key)].annotation
    return None

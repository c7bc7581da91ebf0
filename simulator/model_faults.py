"""What pydantic found wrong with a document, as faults with the path of each and the closest allowed name."""

from typing import Any, get_args

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
    place = root + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in location)
    place = place.removeprefix(".")
    if error["type"] == "missing":
        return Fault(file, place, message="missing")
    if error["type"] == "extra_forbidden":
        known = [] if holder is None else list(holder.model_fields)
        return Fault(file, place, None, ", ".join(known), closest(location[-1], known), "unknown key")
    given = error["input"]
    message = error["msg"].removeprefix("Value error, ")
    shown = given if isinstance(given, str | int | float | bool) else None
    near = None
    if error["type"] == "literal_error" and isinstance(given, str):
        near = closest(given, [word.strip("'") for word in error["ctx"]["expected"].replace(" or ", ", ").split(", ")])
    return Fault(file, place, shown, closest=near, message=message)


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
        if holder is not None and isinstance(key, str) and key in holder.model_fields:
            kind = holder.model_fields[key].annotation
    return path, holder


def _tags(kind: Any) -> list[str]:
    return [part.tag for member in get_args(kind) for part in get_args(member) if isinstance(part, Tag)]


def _model_in(kind: Any) -> type[BaseModel] | None:
    """The model of an annotation, be it a tuple of it, or it or nothing."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    return next((found for part in get_args(kind) if (found := _model_in(part)) is not None), None)

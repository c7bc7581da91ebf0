"""What a user gets for bad input: every fault at once, with its place, the allowed values and the closest match."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with an input.

    Parameters
    ----------
    file
        File the input came from, or the name of a flag or argument.
    place
        Where in it: a path of keys, ``line 3``, ``rows 4, 9``, a column. Empty if the fault concerns the whole.
    given
        What stood there. None if nothing did.
    allowed
        What may stand there.
    closest
        The allowed name that looks most like the given one, if any does.
    message
        What is wrong, in a few words.
    """

    file: str
    place: str = ""
    given: object = None
    allowed: str = ""
    closest: str | None = None
    message: str = ""

    def __str__(self) -> str:
        where = f"{self.file}: {self.place}" if self.place else self.file
        parts = [part for part in (self.message, "" if self.given is None else f"given {self.given!r}") if part]
        if self.allowed:
            parts.append(f"allowed: {self.allowed}")
        line = f"{where}: {'; '.join(parts)}"
        if self.closest:
            line += f" (did you mean {self.closest!r}?)"
        return " ".join(line.split())


class BadInput(ValueError):  # noqa: N818 - the word the user reads
    """Input that cannot be used; carries every fault found.

    Parameters
    ----------
    faults
        One fault or several, in the order they should be read.
    """

    def __init__(self, faults: Fault | Iterable[Fault]) -> None:
        self.faults: list[Fault] = [faults] if isinstance(faults, Fault) else list(faults)
        if not self.faults:
            raise ValueError("BadInput needs at least one fault")
        super().__init__(self.faults)

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))


@contextmanager
def gathering(faults: list[Fault]) -> Iterator[None]:
    """Add the faults of the block to a list instead of ending at them, so that what comes after can find its own."""
    try:
        yield
    except BadInput as error:
        faults += error.faults


def closest(given: object, allowed_names: Iterable[str]) -> str | None:
    """Return the allowed name most like the given one, ignoring case, or None if none is alike."""
    by_lower = {name.lower(): name for name in allowed_names}
    matches = difflib.get_close_matches(str(given).lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None

"""What was wrong with a log: counted by kind, with the first places of each; nothing is dropped uncounted."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rollsim.traces.errors import Fault

PLACES_SHOWN = 5
_GIVEN_SHOWN = 40


@dataclass
class _Kind:
    count: int = 0
    places: list[str] = field(default_factory=list)
    given: object = None
    allowed: str = ""


class Damage:
    """Faults of an import by kind.

    Parameters
    ----------
    log
        The path that is imported; the places lie in it.
    """

    def __init__(self, log: str) -> None:
        self.log = log
        self._kinds: dict[str, _Kind] = {}

    def add(self, message: str, place: str, given: object = None, allowed: str = "", count: int = 1) -> None:
        """Count one fault, or several of a kind; the first few places and the first value given are kept.

        Parameters
        ----------
        message
            The kind: what is wrong, and what became of it.
        place
            Where, for example ``7.jsonl line 3``.
        given, allowed
            As in `rollsim.traces.errors.Fault`.
        count
            How many of them there are.
        """
        kind = self._kinds.setdefault(message, _Kind(given=_short(given), allowed=allowed))
        kind.count += count
        if place and len(kind.places) < PLACES_SHOWN:
            kind.places.append(place)

    @property
    def count(self) -> int:
        """Faults in all."""
        return sum(kind.count for kind in self._kinds.values())

    def counts(self) -> dict[str, int]:
        """How many there are of each kind."""
        return {message: kind.count for message, kind in self._kinds.items()}

    def faults(self) -> tuple[Fault, ...]:
        """One fault a kind, the most frequent first."""
        ordered = sorted(self._kinds.items(), key=lambda entry: -entry[1].count)
        return tuple(
            Fault(self.log, _places(kind.places, kind.count), kind.given, kind.allowed, message=_worded(message, kind))
            for message, kind in ordered
        )


def _worded(message: str, kind: _Kind) -> str:
    return message if kind.count == 1 else f"{message}: {kind.count:,} times"


def _places(places: Iterable[str], count: int) -> str:
    listed = list(places)
    more = f" and {count - len(listed):,} more" if listed and count > len(listed) else ""
    return ", ".join(listed) + more


def _short(given: object) -> object:
    text = given if isinstance(given, str) else repr(given)
    if given is None or len(text) <= _GIVEN_SHOWN:
        return given
    return text[:_GIVEN_SHOWN] + "..."

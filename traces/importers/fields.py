"""Single values of a log as numbers; a value that cannot be used is counted and read as nothing."""

import math
from collections.abc import Mapping

from rollsim.traces.importers.damage import Damage

MAX_COUNT = 2**31 - 1


class Fields:
    """Reads values out of one row of a log.

    Parameters
    ----------
    row
        The values by name.
    place
        Where the row stands.
    damage
        Where faults are counted.
    """

    __slots__ = ("damage", "place", "row")

    def __init__(self, row: Mapping[str, object], place: str, damage: Damage) -> None:
        self.row, self.place, self.damage = row, place, damage

    def number(self, name: str) -> float | None:
        """Return a finite number, or None if there is none."""
        value = self.row.get(name)
        if value is None:
            return None
        if isinstance(value, bool):
            return float(value)
        if not isinstance(value, int | float):
            return self._refuse(name, value, "not a number", "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        return number if math.isfinite(number) else self._refuse(name, value, "not finite", "a finite number")

    def count(self, name: str, low: int = 0) -> int | None:
        """Return a whole number of at least `low`, or None if there is none."""
        value = self.number(name)
        if value is None:
            return None
        if value != math.floor(value):
            return self._refuse(name, value, "not a whole number", "a whole number")
        if value < low:
            return self._refuse(name, value, "negative" if value < 0 else "too small", f"at least {low}")
        if value > MAX_COUNT:
            return self._refuse(name, value, "too large", f"at most {MAX_COUNT:,}")
        return int(value)

    def seconds(self, name: str) -> float | None:
        """Return a time of at least 0 [s], or None if there is none."""
        value = self.number(name)
        return (
            self._refuse(name, value, "negative", "seconds, at least 0") if value is not None and value < 0 else value
        )

    def text(self, name: str) -> str | None:
        """Return a name or number as text, or None if there is none."""
        value = self.row.get(name)
        if value is None:
            return None
        if isinstance(value, str | int | float):
            return str(value).encode("utf-8", "replace").decode("utf-8")
        return self._refuse(name, value, "not a name", "a text or number")

    def inner(self, name: str) -> "Fields":
        """Return a reader of the object that stands there; of an empty one if there is none."""
        value = self.row.get(name)
        if value is not None and not isinstance(value, dict):
            self._refuse(name, value, "not an object", "an object")
        return Fields(value if isinstance(value, dict) else {}, self.place, self.damage)

    def listed(self, name: str) -> list[object]:
        """Return the list that stands there; an empty one if there is none."""
        value = self.row.get(name)
        if value is not None and not isinstance(value, list):
            self._refuse(name, value, "not a list", "a list")
        return value if isinstance(value, list) else []

    def _refuse(self, name: str, value: object, what: str, allowed: str) -> None:
        self.damage.add(f"{name} is {what}; the value is not used", self.place, value, allowed)

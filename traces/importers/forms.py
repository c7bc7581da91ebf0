"""Rows of several versions of a format in one log: keys that some rows have and others have not."""

from collections import Counter
from collections.abc import Iterable, Mapping

from rollsim.traces.importers.damage import Damage


class Forms:
    """Counts the rows that have each key.

    Parameters
    ----------
    keys
        Those that all rows of one version have.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._having = Counter(dict.fromkeys(keys, 0))
        self._first_without: dict[str, str] = {}
        self._rows = 0

    def see(self, row: Mapping[str, object], place: str) -> None:
        """Look at a row."""
        self._rows += 1
        for key in self._having:
            if key in row:
                self._having[key] += 1
            else:
                self._first_without.setdefault(key, place)

    def report(self, damage: Damage) -> None:
        """Count the rows that lack a key which others have."""
        for key, having in self._having.items():
            if 0 < having < self._rows:
                what = f"a row without {key} among rows with it (mixed versions); what it tells is unknown"
                damage.add(what, self._first_without[key], count=self._rows - having)

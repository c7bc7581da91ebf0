"""The groups of a run: which trajectories, and how many of them still live."""

import numpy as np

from rollsim.simulator.kernel.groups import GROUP
from rollsim.simulator.kernel.state import readable


class Groups:
    """Records in the order of starts.

    Attributes
    ----------
    rows : array of GROUP
        View of the records in use, valid until the next `add`.
    n : int
        How many there are.
    """

    def __init__(self) -> None:
        self._records = readable(np.empty(128, GROUP))
        self.n = 0
        self.rows = self._records[:0]

    def add(self, first: int, sizes: np.ndarray, *, validation: bool) -> np.ndarray:
        """Append groups whose trajectories follow one another from `first` on; returns their numbers."""
        n = self.n
        self.n += len(sizes)
        if self.n > len(self._records):
            longer = readable(np.empty(max(self.n, 2 * len(self._records)), GROUP))
            longer[:n] = self._records[:n]
            self._records = longer
        self.rows = self._records[: self.n]
        new = self.rows[n:]
        new["first"] = first + np.cumsum(sizes) - sizes
        new["size"] = new["live"] = sizes
        new["validation"] = validation
        return np.arange(n, self.n)

    def members(self, groups: np.ndarray) -> np.ndarray:
        """Numbers of the trajectories of these groups, group by group."""
        rows = self.rows[groups]
        sizes = rows["size"].astype(np.int64)
        ends = np.cumsum(sizes)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)
        return np.repeat(rows["first"], sizes) + within

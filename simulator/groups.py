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

    def add(self, count: int) -> int:
        """Make room for so many more, which the caller fills in; returns the number of the first."""
        first = self.n
        self.n += count
        if self.n > len(self._records):
            longer = readable(np.empty(max(self.n, 2 * len(self._records)), GROUP))
            longer[:first] = self._records[:first]
            self._records = longer
        self.rows = self._records[: self.n]
        return first

    def members(self, groups: np.ndarray) -> np.ndarray:
        """Numbers of the trajectories of these groups, group by group."""
        rows = self.rows[groups]
        sizes = rows["members"].astype(np.int64)
        ends = np.cumsum(sizes)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)
        return np.repeat(rows["first"], sizes) + within

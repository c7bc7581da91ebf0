"""The groups of a run: which trajectories, how many of them still live, and what their prompt is."""

import numpy as np

GROUP = np.dtype(
    [
        ("first", "i8"),
        ("size", "i4"),
        ("live", "i4"),
        ("prompt", "i8"),
        ("visit", "i4"),
        ("validation", "?"),
    ],
    align=True,
)


class Groups:
    """Records in the order of starts; `rows` is a view of those in use, valid until the next `add`."""

    def __init__(self) -> None:
        self._records = np.empty(128, GROUP)
        self.n = 0

    @property
    def rows(self) -> np.ndarray:
        """Records in use."""
        return self._records[: self.n]

    def add(
        self, first: int, prompts: np.ndarray, visits: np.ndarray, sizes: np.ndarray, *, validation: bool
    ) -> np.ndarray:
        """Append groups whose trajectories follow one another from `first` on; returns their numbers."""
        n = self.n
        self.n += len(prompts)
        if self.n > len(self._records):
            longer = np.empty(max(self.n, 2 * len(self._records)), GROUP)
            longer[:n] = self._records[:n]
            self._records = longer
        new = self._records[n : self.n]
        new["first"] = first + np.cumsum(sizes) - sizes
        new["size"] = new["live"] = sizes
        new["prompt"], new["visit"], new["validation"] = prompts, visits, validation
        return np.arange(n, self.n)

    def members(self, groups: np.ndarray) -> np.ndarray:
        """Numbers of the trajectories of these groups, group by group."""
        rows = self.rows[groups]
        sizes = rows["size"].astype(np.int64)
        ends = np.cumsum(sizes)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)
        return np.repeat(rows["first"], sizes) + within

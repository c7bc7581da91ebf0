"""Every trajectory of a run, one growing record array in the order of starts; those of a group are neighbours.

Unknown times and numbers are -1. `reward_s` is the time from an end to its reward.
"""

import numpy as np

from rollsim.simulator.kernel.state import readable

NOT_YET, TRAINED, DISCARDED = 0, 1, 2
# Why a trajectory was discarded, by the number in its record.
REASONS = ("stale", "no signal", "filtered", "round over", "validation", "stopped")
STALE, NO_SIGNAL, FILTERED, ROUND_OVER, VALIDATION, STOPPED = range(len(REASONS))

TRAJECTORY = np.dtype(
    [
        ("group", "i8"),
        ("prompt", "i8"),
        ("t_submit_s", "f8"),
        ("t_start_s", "f8"),
        ("t_first_token_s", "f8"),
        ("t_end_s", "f8"),
        ("t_final_s", "f8"),
        ("reward_s", "f8"),
        ("reward", "f4"),
        ("visit", "i4"),
        ("sample", "i4"),
        ("attempts", "i4"),
        ("prompt_tokens", "i4"),
        ("target_tokens", "i4"),
        ("output_tokens", "i4"),
        ("cached_tokens", "i4"),
        ("recomputed_tokens", "i4"),
        ("num_preempted", "i4"),
        ("replica", "i4"),
        ("request", "i4"),
        ("version_start", "i4"),
        ("version_end", "i4"),
        ("version_trained", "i4"),
        ("step_trained", "i4"),
        ("fate", "i1"),
        ("reason", "i1"),
        ("truncated", "?"),
        ("extra", "?"),
    ],
    align=True,
)

# A record of which nothing is known.
UNKNOWN = np.full(1, -1, TRAJECTORY)
for _name in ("attempts", "output_tokens", "fate", "truncated", "extra"):
    UNKNOWN[_name] = 0
UNKNOWN["reward"] = np.nan


class Trajectories:
    """The records.

    Attributes
    ----------
    rows : array of TRAJECTORY
        View of the records in use, valid until the next `add`.
    n : int
        How many there are.
    """

    def __init__(self) -> None:
        self._records = readable(np.empty(1024, TRAJECTORY))
        self.n = 0
        self.rows = self._records[:0]

    def add(self, new: np.ndarray) -> int:
        """Append records; returns the number of the first."""
        first = self.n
        self.n += len(new)
        if self.n > len(self._records):
            # Far more than needed: what is not written takes no memory, and copies take time.
            longer = readable(np.empty(max(self.n, 4 * len(self._records)), TRAJECTORY))
            longer[:first] = self._records[:first]
            self._records = longer
        self.rows = self._records[: self.n]
        self.rows[first:] = new
        return first

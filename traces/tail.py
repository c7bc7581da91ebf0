"""The tail: from the time when 90 % of the trajectories have ended to the end of the last one."""

from dataclasses import dataclass

import numpy as np

ENDED_PERCENT = 90


@dataclass(frozen=True)
class Tail:
    """The last tenth of the trajectories.

    Attributes
    ----------
    start_s
        End of the trajectory with which `ENDED_PERCENT` of them have ended.
    seconds, share
        How long it lasts, and that over the makespan.
    trajectories
        Those that end in it.
    running_mean
        Trajectories that had started and not ended, averaged over the tail and per replica.
    output_tokens
        Generated in it: a trajectory's tokens are spread evenly from its first token to its end.
    """

    start_s: float
    seconds: float
    share: float | None
    trajectories: int
    running_mean: float | None
    output_tokens: int


def tail(
    start_s: np.ndarray,
    first_token_s: np.ndarray,
    end_s: np.ndarray,
    output_tokens: np.ndarray,
    replica: np.ndarray,
    makespan_s: float | None,
) -> Tail | None:
    """Measure the tail of a run; None if nothing ended. Times [s] may be NaN where not known."""
    ended = ~np.isnan(end_s)
    n = int(ended.sum())
    if not n:
        return None
    rank = -(-ENDED_PERCENT * n // 100)
    begin_s = float(np.partition(end_s[ended], rank - 1)[rank - 1])
    seconds = float(end_s[ended].max()) - begin_s
    running_s = np.clip(end_s - np.fmax(start_s, begin_s), 0.0, None)
    generating_s = np.clip(end_s - np.fmax(first_token_s, begin_s), 0.0, None)
    whole_s = end_s - first_token_s
    late = (generating_s > 0) & (whole_s > 0)
    tokens = float((output_tokens[late] * generating_s[late] / whole_s[late]).sum())
    return Tail(
        start_s=begin_s,
        seconds=seconds,
        share=seconds / makespan_s if makespan_s else None,
        trajectories=int((end_s[ended] > begin_s).sum()),
        running_mean=float(np.nansum(running_s)) / seconds / len(np.unique(replica)) if seconds > 0 else None,
        output_tokens=round(tokens),
    )

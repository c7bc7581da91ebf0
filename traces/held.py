"""Gauges as functions of time: a sample holds until the next one of the same replica, the last one for no time."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

GAUGES = ("running", "waiting", "num_preempted")


@dataclass(frozen=True)
class Held:
    """Samples by replica and time.

    Attributes
    ----------
    replicas
        Replicas in order, array [R].
    first
        Index of each replica's first sample, array [R].
    covered_s
        From the first to the last sample of each replica, array [R].
    t_s, dt_s
        Start of each sample and how long it holds [s], arrays [n].
    columns
        ``running``, ``waiting``, ``num_preempted`` and ``kv_share``, float64 [n], NaN where not known.
    """

    replicas: np.ndarray
    first: np.ndarray
    covered_s: np.ndarray
    t_s: np.ndarray
    dt_s: np.ndarray
    columns: dict[str, np.ndarray]


def held(gauges: pa.Table) -> Held:
    """Arrange a gauges table of at least one row; samples may come in any order, those of equal time keep theirs."""
    replica, t_s = gauges["replica"].fill_null(0).to_numpy(), gauges["t_s"].to_numpy()
    order = np.lexsort((t_s, replica))
    replica, t_s = replica[order], t_s[order]
    first = np.flatnonzero(np.diff(replica, prepend=replica[0] - 1))
    last = np.append(first[1:], len(t_s)) - 1
    dt_s = np.diff(t_s, append=t_s[-1])
    dt_s[last] = 0.0
    columns = {name: _floats(gauges, name)[order] for name in GAUGES}
    with np.errstate(invalid="ignore", divide="ignore"):
        share = _floats(gauges, "kv_used_blocks") / _floats(gauges, "kv_total_blocks")
    columns["kv_share"] = np.where(np.isfinite(share), share, np.nan)[order]
    return Held(replica[first], first, t_s[last] - t_s[first], t_s, dt_s, columns)


def _floats(table: pa.Table, name: str) -> np.ndarray:
    return table[name].cast(pa.float64()).to_numpy()

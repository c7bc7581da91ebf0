"""Batch and KV over time: a run's gauges cut into a few slices of equal length."""

from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from rollsim.traces.held import Held, held


@dataclass(frozen=True)
class Slice:
    """Mean state between two times.

    Attributes
    ----------
    t0_s, t1_s
        The slice.
    running, waiting
        Mean number of sequences in the batches, and of requests waiting, summed over the replicas.
    kv_share
        Mean share of the KV blocks of all replicas that is held by requests; a replica that has no samples, or none in
        a part of the slice, holds none then.
    preemptions
        By the end of the slice, since the start of the run.
    """

    t0_s: float
    t1_s: float
    running: float
    waiting: float
    kv_share: float
    preemptions: int

    def document(self) -> dict[str, object]:
        """Return the slice as JSON."""
        return asdict(self)


def timeline(gauges: pa.Table, slices: int = 10, replicas: int | None = None) -> list[Slice]:
    """Cut the time from the first to the last sample into slices, for as many replicas (None: as have samples)."""
    if not len(gauges):
        return []
    samples = held(gauges)
    start_s, end_s = float(samples.t_s.min()), float(samples.t_s.max())
    if end_s <= start_s:
        return []
    edges = np.linspace(start_s, end_s, slices + 1)
    widths = np.diff(edges)
    running, waiting, kv = (_slice_sums(samples, name, edges) / widths for name in ("running", "waiting", "kv_share"))
    preempted = samples.columns["num_preempted"]
    rises = np.diff(preempted, prepend=0.0)
    rises[samples.first] = preempted[samples.first]
    counts = [int(np.nansum(rises[samples.t_s <= edge])) for edge in edges[1:]]
    kv /= replicas or len(samples.replicas)
    return [
        Slice(float(edges[i]), float(edges[i + 1]), float(running[i]), float(waiting[i]), float(kv[i]), counts[i])
        for i in range(slices)
    ]


def _slice_sums(samples: Held, name: str, edges: np.ndarray) -> np.ndarray:
    """Integral of a gauge over each slice, summed over replicas."""
    values = np.nan_to_num(samples.columns[name])
    up_to = np.array([values @ np.clip(edge - samples.t_s, 0.0, samples.dt_s) for edge in edges])
    return np.diff(up_to)

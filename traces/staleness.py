"""Staleness: version of the weights when a train step began less the oldest version in what it consumed."""

from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Bin:
    """Trajectories of one staleness [versions], and their share of all that were trained."""

    versions: int
    trajectories: int
    share: float


@dataclass(frozen=True)
class Staleness:
    """Distribution over the trajectories that were trained.

    Attributes
    ----------
    bins
        From the smallest to the largest, without gaps.
    mean, max
        Over trajectories [versions].
    group_mean
        Over groups, each as stale as its stalest member.
    mixed_share
        Trajectories with tokens of more than one version.
    """

    trajectories: int
    groups: int
    bins: tuple[Bin, ...]
    mean: float
    max: int
    group_mean: float | None
    mixed_share: float | None

    def document(self) -> dict[str, object]:
        """Return the numbers as JSON."""
        return asdict(self)


COLUMNS = ["version_start", "version_end", "version_trained", "group_id"]


def staleness(rollouts: pa.Table) -> Staleness | None:
    """Measure staleness; None if no trajectory is known to have been trained."""
    known = pc.and_(pc.is_valid(rollouts["version_trained"]), pc.is_valid(rollouts["version_start"]))
    trained = rollouts.select(COLUMNS).filter(known)
    if not len(trained):
        return None
    start = trained["version_start"].to_numpy()
    age = trained["version_trained"].to_numpy() - start
    low = int(age.min())
    counts = np.bincount(age - low)
    bins = tuple(Bin(low + i, int(count), int(count) / len(age)) for i, count in enumerate(counts))
    group_mean, groups = _by_group(trained["group_id"], age)
    end = trained["version_end"]
    mixed = None if end.null_count else float((end.to_numpy() > start).mean())
    return Staleness(len(age), groups, bins, float(age.mean()), int(age.max()), group_mean, mixed)


def _by_group(group_id: pa.ChunkedArray, age: np.ndarray) -> tuple[float | None, int]:
    if group_id.null_count:
        return None, 0
    group = group_id.to_numpy()
    order = np.argsort(group, kind="stable")
    first = np.flatnonzero(np.diff(group[order], prepend=group[order[0]] - 1))
    return float(np.maximum.reduceat(age[order], first).mean()), len(first)

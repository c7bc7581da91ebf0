"""What the world shows its policies: the counts behind `rollsim.policies.base.View`."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True)
class Counts:
    """The world writes these; policies read them through `View`, which has no way to write."""

    now_s: float = 0.0
    version: int = 0
    updates: int = 0
    steps: int = 0
    groups_per_step: int = 1
    samples_per_group: int = 1
    versions_per_step: int = 1
    groups_per_version: int = 1
    groups_started: int = 0
    groups_in_flight: int = 0
    groups_buffered: int = 0
    groups_consumed: int = 0
    groups_dropped: int = 0
    groups_carried: int = 0
    groups_missing: int = 0
    oldest_under_way: int = 0
    trajectories_in_flight: int = 0
    replica_loads: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    replica_versions: list[int] = field(default_factory=list)
    total_gpus: int = 0

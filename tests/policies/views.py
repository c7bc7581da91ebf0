"""A view that stands still, for policies alone."""

import numpy as np

from rollsim.simulator.view import Counts


def still_view(**counts: object) -> Counts:
    """Counts of a small world: 4 groups of 2 to a step, 4 GPUs, 2 empty replicas."""
    loads = np.array(counts.pop("replica_loads", (0, 0)))
    defaults = {"groups_per_step": 4, "groups_per_version": 4, "samples_per_group": 2, "total_gpus": 4}
    return Counts(**(defaults | counts), replica_loads=loads)

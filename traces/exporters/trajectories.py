"""The trajectories as JSON lines with our column names, which `rollsim import table` reads again."""

import json
from collections.abc import Iterator

import pyarrow as pa

_ROWS = 8192


def trajectory_lines(rollouts: pa.Table) -> Iterator[str]:
    """Yield one line a trajectory; what is not known is left out."""
    known = [name for name in rollouts.column_names if rollouts[name].null_count < len(rollouts)]
    for batch in rollouts.select(known).to_batches(_ROWS):
        for row in batch.to_pylist():
            yield json.dumps({name: value for name, value in row.items() if value is not None}) + "\n"

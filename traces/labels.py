"""Label columns without a Python string per row."""

import numpy as np
import pyarrow as pa


def has_label(column: pa.ChunkedArray, label: str) -> np.ndarray:
    """Rows of a dictionary column that hold this label, as an array of bool."""
    parts = [np.empty(0, bool)]
    for chunk in column.chunks:
        names = chunk.dictionary.to_pylist()
        code = names.index(label) if label in names else -2
        parts.append(chunk.indices.fill_null(-1).to_numpy() == code)
    return np.concatenate(parts)

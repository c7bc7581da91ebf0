"""What else a table of rollouts tells: how lengths drift with the weights, and how long rewards and tools take."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import theilslopes

from rollsim.traces.requests import trace_file

_KNOTS = 5
_FEWEST = 20


def extras(path: str) -> dict[str, Any]:
    """Return ``drift``, ``reward_s`` and ``tool_s``, each None where the table does not tell it.

    Parameters
    ----------
    path
        As `rollsim.traces.requests.read_requests` takes it. Other files than Parquet tell none of these.
    """
    file = trace_file(path)
    if file.suffix != ".parquet":
        return {"drift": None, "reward_s": None, "tool_s": None}
    names = ("version_start", "step_trained", "output_tokens", "reward_s", "tool_s")
    table = pq.read_table(file, columns=[name for name in names if name in pq.read_schema(file).names])
    return {
        "drift": _drift(table),
        "reward_s": _latency(table, "reward_s"),
        "tool_s": _latency(table, "tool_s"),
    }


def _drift(table: pa.Table) -> dict[str, Any] | None:
    """Factors of the median length over versions of the weights, or train steps; None where there is one or none.

    The slope of the logarithm over versions is that of Theil and Sen, with its 95 % interval; it `is_told` if that does
    not hold 0.
    """
    by = next((name for name in ("version_start", "step_trained") if name in table.schema.names), None)
    if by is None or "output_tokens" not in table.schema.names:
        return None
    known = table.select([by, "output_tokens"]).drop_null()
    version, tokens = known[by].to_numpy().astype(float), known["output_tokens"].to_numpy()
    versions = np.unique(version)
    if len(versions) < _KNOTS:
        return None
    medians = np.array([np.median(tokens[version == at]) for at in versions])
    slope, start, low, high = map(float, theilslopes(np.log(np.maximum(medians, 1)), versions))
    at = np.linspace(versions[0], versions[-1], _KNOTS)
    factors = np.exp(slope * (at - versions[0]))
    return {
        "by": by,
        "versions": [float(versions[0]), float(versions[-1])],
        "per_version": slope,
        "interval": [low, high],
        "is_told": bool(low > 0 or high < 0),
        "first_median": float(np.exp(start + slope * versions[0])),
        "knots": [{"version": int(v), "factor": float(f)} for v, f in zip(at, factors, strict=True)],
    }


def _latency(table: pa.Table, name: str) -> dict[str, Any] | None:
    if name not in table.schema.names:
        return None
    seconds = table[name].drop_null().to_numpy()
    seconds = seconds[seconds > 0]
    if len(seconds) < _FEWEST:
        return None
    median, p99 = (float(value) for value in np.quantile(seconds, (0.5, 0.99)))
    return {"n": len(seconds), "median_s": median, "p99_s": max(p99, median), "longest_s": float(seconds.max())}

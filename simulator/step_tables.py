"""From the few rows of a profile's tables to one array entry for every token count and batch size.

Between rows the dense time is linear in the tokens, and the time to read a fixed context is linear in the batch.
Steps are padded to the CUDA-graph sizes, so every count between two sizes costs what the larger one does.
"""

import numpy as np
from numpy.typing import NDArray

from rollsim.simulator.profile_parts import DecodeTable, PrefillTable

Floats = NDArray[np.float64]


def padded(tokens: NDArray[np.int64], sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """Tokens that a step really runs: the next graph size, or the tokens themselves above the largest."""
    if not sizes:
        return tokens
    graph = np.asarray(sizes, dtype=np.int64)
    at = np.searchsorted(graph, tokens)
    return np.where(at < graph.size, graph[np.minimum(at, graph.size - 1)], tokens)


def kv_read_s(table: DecodeTable, batch: NDArray[np.int64]) -> Floats:
    """Seconds per KV token at each batch size.

    ``kv_read * batch`` (the time per token of common context) is interpolated; above the last row ``kv_read`` is kept.
    """
    rows = np.asarray(table.batch, dtype=np.float64)
    per_context_token = rows * np.asarray(table.kv_read_s)
    clipped = np.clip(batch.astype(np.float64), rows[0], rows[-1])
    return np.interp(clipped, rows, per_context_token) / clipped


def prefill_dense_s(table: PrefillTable, tokens: NDArray[np.int64]) -> Floats:
    """Dense seconds of a prefill step; above the last row the last slope goes on, below the first its time is kept."""
    rows, dense_s = np.asarray(table.tokens, dtype=np.float64), np.asarray(table.dense_s)
    values = np.interp(tokens.astype(np.float64), rows, dense_s)
    slope = (dense_s[-1] - dense_s[-2]) / (rows[-1] - rows[-2]) if rows.size > 1 else dense_s[-1] / rows[-1]
    return values + slope * np.maximum(0.0, tokens - rows[-1])


def decode_dense_s(decode: DecodeTable, prefill: PrefillTable, tokens: NDArray[np.int64]) -> Floats:
    """Dense seconds of a decode step; above the last row it grows as the prefill table does over the same tokens."""
    rows = np.asarray(decode.batch, dtype=np.float64)
    values = np.interp(tokens.astype(np.float64), rows, np.asarray(decode.dense_s))
    last = np.asarray([decode.batch[-1]], dtype=np.int64)
    growth = prefill_dense_s(prefill, tokens) - prefill_dense_s(prefill, last)
    return values + np.where(tokens > last[0], np.maximum(growth, 0.0), 0.0)


def mixed_dense_s(decode: DecodeTable, prefill: PrefillTable, tokens: NDArray[np.int64]) -> Floats:
    """Dense seconds of a step with prefill.

    From the smallest measured prefill on the prefill table, so that prefill-only steps come out as measured. Below it
    the decode table (the matrix products are those of as many decoding sequences), capped at that smallest prefill.
    """
    measured = prefill_dense_s(prefill, tokens)
    joined = np.minimum(decode_dense_s(decode, prefill, tokens), prefill.dense_s[0])
    return np.where(tokens >= prefill.tokens[0], measured, joined)


def decode_steps(decode: DecodeTable, prefill: PrefillTable, sizes: tuple[int, ...], max_tokens: int) -> Floats:
    """`StepCost.decode_s`: entry T for T scheduled tokens, 0 at T = 0."""
    tokens = padded(np.arange(1, max_tokens + 1), sizes)
    return np.concatenate([[0.0], decode_dense_s(decode, prefill, tokens)])


def mixed_steps(decode: DecodeTable, prefill: PrefillTable, sizes: tuple[int, ...], max_tokens: int) -> Floats:
    """`StepCost.mixed_s`: entry T for T scheduled tokens, 0 at T = 0; never falls with T."""
    tokens = padded(np.arange(1, max_tokens + 1), sizes)
    return np.concatenate([[0.0], np.maximum.accumulate(mixed_dense_s(decode, prefill, tokens))])

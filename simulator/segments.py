"""Spans of trajectories: waiting for a replica, prefill and decode, from the kernel's logs of stays."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rollsim.traces.schema import SEGMENT_KINDS, build

_QUEUE, _PREFILL, _REPREFILL, _DECODE = map(SEGMENT_KINDS.index, ("queue", "prefill", "reprefill", "decode"))


def segments(rows: np.ndarray, logs: Sequence[np.ndarray], owners: Sequence[np.ndarray]) -> pa.Table:
    """Segments as a table, by trajectory and time.

    A stay in the running batch is prefill up to its first token and decode after it; in a later stay of a trajectory
    the prefill recomputes what was lost. What lies between two stays, and before the first, is queueing.

    Parameters
    ----------
    rows : array [n] of TRAJECTORY
    logs : sequence of array of SPAN
        Stays that ended, one log a replica.
    owners : sequence of array
        Trajectory of each request of a replica.
    """
    stays = np.concatenate(logs)
    replica = np.repeat(np.arange(len(logs)), [len(log) for log in logs])
    trajectory = np.concatenate([owner[log["request"]] for owner, log in zip(owners, logs, strict=True)])
    order = np.lexsort((stays["t0_s"], trajectory))
    stays, replica, trajectory = stays[order], replica[order], trajectory[order]
    first = np.diff(trajectory, prepend=-1) != 0
    t0_s, t1_s = stays["t0_s"], stays["t1_s"]
    begin_s = np.where(first, rows["t_submit_s"][trajectory], np.roll(t1_s, 1))
    # A stay that new weights cut goes on decoding: its first token came before it.
    token_s = stays["token_s"]
    split_s = np.where(token_s < 0, t1_s, np.clip(token_s, t0_s, t1_s))
    context = rows["prompt_tokens"][trajectory] + stays["out_before"]
    prefilled = np.where(split_s > t0_s, context - stays["cached_tokens"], 0)
    redone = ~first
    parts = (
        (_QUEUE, begin_s, t0_s, np.zeros(len(stays), np.int64), np.full(len(stays), -1)),
        (_PREFILL, t0_s, np.where(redone, t0_s, split_s), np.where(redone, 0, prefilled), stays["version"]),
        (_REPREFILL, t0_s, np.where(redone, split_s, t0_s), np.where(redone, prefilled, 0), stays["version"]),
        (_DECODE, split_s, t1_s, stays["out_after"] - stays["out_before"], stays["version"]),
    )
    kept = [(t1 > t0) | (tokens > 0) for _, t0, t1, tokens, _ in parts]
    which = np.concatenate([np.flatnonzero(keep) for keep in kept])
    kind = np.repeat([part[0] for part in parts], [int(keep.sum()) for keep in kept]).astype(np.int32)
    t0, t1, tokens, version = (
        np.concatenate([np.asarray(part[i])[keep] for part, keep in zip(parts, kept, strict=True)]) for i in range(1, 5)
    )
    order = np.lexsort((kind, t0, trajectory[which]))
    which, kind, version = which[order], kind[order], version[order]
    return build(
        "segments",
        {
            "sample_id": pa.array(trajectory[which]).cast(pa.string()),
            "replica": pa.array(replica[which], mask=kind == _QUEUE),
            "version": pa.array(version.astype(np.int64), mask=version < 0),
            "kind": pa.DictionaryArray.from_arrays(pa.array(kind), SEGMENT_KINDS),
            "tokens": tokens[order],
            "t0_s": t0[order],
            "t1_s": t1[order],
        },
    )

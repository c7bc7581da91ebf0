"""State of one replica as flat record arrays: what the compiled kernel reads and writes, and what a snapshot copies.

One index names a request in every array of a replica. Token progress is integer arithmetic in units of
1/FP token, so that k steps taken at once and k single steps give the same bits.
"""

from typing import NamedTuple

import numba
import numpy as np

from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits

FP_BITS = 10
FP = 1 << FP_BITS
NONE = -1

# Interpreted, the kernel computes in numpy scalars, which do not widen by themselves.
_INT = "i8" if numba.config.DISABLE_JIT else "i4"  # type: ignore[attr-defined]

# Life of a request. DECODING members live in the rank's event heap and advance with its decode clock;
# ENDING ones (asynchronous scheduling) have their last token in flight and keep slot and blocks for one more call.
WAITING, RUNNING, DECODING, ENDING, FINISHED, ABORTED = 1, 2, 3, 4, 5, 6

# Why the head of `waiting` cannot be admitted before something ends: no slot or blocks, or no tokens left in a step.
NO_ROOM, NO_TOKENS = 1, 2

ENGINE = np.dtype(
    [
        ("now_s", "f8"),
        ("step", "i8"),
        ("events", "i8"),
        ("admissions", "i8"),
        ("arrivals", "i8"),
        ("n_unfinished", "i8"),
        ("n_finished", "i8"),
        ("preemptions", "i8"),
        ("max_batch", "i8"),
        ("max_blocks", "i8"),
        ("max_step_tokens", "i8"),
        ("seg_top", "i8"),
        ("seg_free", "i8"),
        ("hold_top", "i8"),
        ("hold_free", "i8"),
        ("gauge_n", "i8"),
        ("gauge_dt_s", "f8"),
        ("span_n", "i8"),
        ("version", "i8"),
        ("paused", "i8"),
        ("trace", "i8"),
        ("max_num_seqs", "i8"),
        ("budget", "i8"),
        ("block_size", "i8"),
        ("num_blocks", "i8"),
        ("max_model_len", "i8"),
        ("threshold", "i8"),
        ("adaptive", "i8"),
        ("watermark", "i8"),
        ("caching", "i8"),
        ("chunked", "i8"),
        ("priority", "i8"),
        ("asynchronous", "i8"),
        ("spec_tokens", "i8"),
        ("overlap", "i8"),
        ("host_s", "f8"),
        ("prefill_attn_s", "f8"),
        ("decode_time_s", "f8"),
        ("prefill_time_s", "f8"),
        ("recompute_time_s", "f8"),
        ("host_time_s", "f8"),
    ],
    align=True,
)

RANK = np.dtype(
    [
        ("run_head", "i8"),
        ("run_tail", "i8"),
        ("wait_head", "i8"),
        ("wait_tail", "i8"),
        ("n_running", "i8"),
        ("n_waiting", "i8"),
        ("n_unfinished", "i8"),
        ("n_decoding", "i8"),
        ("n_ending", "i8"),
        ("n_odd", "i8"),
        ("n_sharing", "i8"),
        ("clock", "i8"),
        ("demand", "i8"),
        ("blocked", "i8"),
        ("free_keyless", "i8"),
        ("free_keyed", "i8"),
        ("lru_head", "i8"),
        ("lru_tail", "i8"),
        ("blocks_peak", "i8"),
        ("running_peak", "i8"),
        ("waiting_peak", "i8"),
        ("n_served", "i8"),
        ("steady", "i8"),
        ("n_sched", "i8"),
        ("n_preempted", "i8"),
        ("n_pend", "i8"),
        ("sched_tokens", "i8"),
        ("sched_prefill", "i8"),
        ("sched_recompute", "i8"),
        ("decode_b", "i8"),
        ("decode_u", "f8"),
        ("attn", "f8"),
        ("attn_recompute", "f8"),
    ],
    align=True,
)

# Where the KV of a request is: DECODING to ENDING and RUNNING ones have theirs here, `decode.computed_tokens` of it;
# WAITING ones nowhere, but for `kv_tokens` that come with a new one. `kv_version` is that of the oldest weights in it.
# Its blocks before `old_blocks` were begun under earlier weights than the engine's; those without key by `old_version`.
REQUEST = np.dtype(
    [
        ("start", "i8"),
        ("key", "i8"),
        ("clock_in", "i8"),
        ("order", "i8"),
        ("arrival", "i8"),
        ("sched_step", "i8"),
        ("idle_step", "i8"),
        ("first_token_s", "f8"),
        ("finish_s", "f8"),
        ("admit_s", "f8"),
        ("span_t0_s", "f8"),
        ("state", _INT),
        ("rank", _INT),
        ("prompt", _INT),
        ("target", _INT),
        ("out", _INT),
        ("computed", _INT),
        ("rate", _INT),
        ("drafts", _INT),
        ("priority", _INT),
        ("parent", _INT),
        ("shared", _INT),
        ("kv_tokens", _INT),
        ("kv_version", _INT),
        ("old_blocks", _INT),
        ("old_version", _INT),
        ("inflight", _INT),
        ("odd", _INT),
        ("sharing", _INT),
        ("owned", _INT),
        ("registered", _INT),
        ("cached", _INT),
        ("span_cached", _INT),
        ("span_out", _INT),
        ("span_version", _INT),
        ("span_row", _INT),
        ("recomputed", _INT),
        ("preemptions", _INT),
        ("sched_n", _INT),
        ("heap_pos", _INT),
        ("interval", _INT),
        ("prev", _INT),
        ("next", _INT),
        ("hold_head", _INT),
        ("run_first", _INT),
        ("run_last", _INT),
    ],
    align=True,
)

# A segment: consecutive cached blocks [lo, hi) of one request's content that one incarnation wrote and that the same
# holders hold. `run` links the segments of that incarnation, `content` those of the content, `lru` the free ones.
SEGMENT = np.dtype(
    [
        ("owner", _INT),
        ("lo", _INT),
        ("hi", _INT),
        ("refs", _INT),
        ("version", _INT),
        ("writer", _INT),
        ("run_prev", _INT),
        ("run_next", _INT),
        ("content_prev", _INT),
        ("content_next", _INT),
        ("lru_prev", _INT),
        ("lru_next", _INT),
    ],
    align=True,
)

HOLD = np.dtype([("segment", _INT), ("end", _INT), ("next", _INT)], align=True)
HIT = np.dtype([("segment", _INT), ("lo", _INT), ("hi", _INT)], align=True)
# Scratch and indices of a rank, by position: the event heap, what the current step scheduled, preempted and left
# pending (output in flight that needs attention), requests in order of their end; by request: its content's segments.
SLOT = np.dtype(
    [
        ("heap", _INT),
        ("scheduled", _INT),
        ("tokens", _INT),
        ("drafts", _INT),
        ("computed", _INT),
        ("had_output", _INT),
        ("preempted", _INT),
        ("pending", _INT),
        ("finished", _INT),
        ("first_segment", _INT),
        ("last_segment", _INT),
    ],
    align=True,
)
DENSE = np.dtype([("decode_s", "f8"), ("mixed_s", "f8")], align=True)
CONTEXT = np.dtype([("knot", "f8"), ("slope", "f8"), ("offset", "f8")], align=True)
GAUGE = np.dtype(
    [("t_s", "f8"), ("running", _INT), ("waiting", _INT), ("blocks", _INT), ("preemptions", "i8")], align=True
)
# One row for each stay in `running`, cut where the weights change under it: tokens out_before..out_after were sampled
# with weights `version` from KV whose oldest part is of `kv_version`; `reason` is the state that the request goes to.
SPAN = np.dtype(
    [
        ("request", _INT),
        ("version", _INT),
        ("kv_version", _INT),
        ("t0_s", "f8"),
        ("t1_s", "f8"),
        ("cached_tokens", _INT),
        ("out_before", _INT),
        ("out_after", _INT),
        ("reason", _INT),
    ],
    align=True,
)
GAUGE_ROWS = 512


class State(NamedTuple):
    """Arrays of one replica; D ranks, N request slots, K context intervals, S = block_size."""

    engine: np.ndarray  # (1,) ENGINE
    rank: np.ndarray  # (D,) RANK
    request: np.ndarray  # (N,) REQUEST
    slot: np.ndarray  # (D, N) SLOT
    segment: np.ndarray  # (D * num_blocks,) SEGMENT: every segment holds at least one block
    hold: np.ndarray  # (bound of live holds,) HOLD
    hit: np.ndarray  # (max blocks of a request,) HIT: scratch of one lookup
    residues: np.ndarray  # (D, S) int64: even decoding members by (progress - clock) mod S
    sums: np.ndarray  # (D, K, 3) int64: members, sum of start, sum of rate per context interval
    gauge: np.ndarray  # (GAUGE_ROWS,) GAUGE: thinned to a bounded number of rows
    span: np.ndarray  # (any,) SPAN: log of stays in `running` that ended
    dense: np.ndarray  # (max tokens of a step + 1,) DENSE
    kv_read_s: np.ndarray  # (max_num_seqs + 1,)
    context: np.ndarray  # (K,) CONTEXT
    lines: np.ndarray  # (D + 1, 2) float64: scratch of the cost envelope


class Tables(NamedTuple):
    """A `StepCost` as the kernel reads it; replicas of a kind share one."""

    dense: np.ndarray
    kv_read_s: np.ndarray
    context: np.ndarray
    host_s: float
    overlap: bool
    prefill_attn_s: float


def tables(cost: StepCost) -> Tables:
    """Arrange a cost model for the kernel."""
    return Tables(
        dense=_table(DENSE, cost.decode_s, cost.mixed_s),
        kv_read_s=np.array(cost.kv_read_s),
        context=_table(CONTEXT, cost.context_knots, cost.context_slopes, cost.context_offsets),
        host_s=cost.host_s,
        overlap=cost.overlap,
        prefill_attn_s=cost.prefill_attn_s,
    )


def allocate(limits: EngineLimits, cost: Tables, capacity: int, spans: int = 0) -> State:
    """Fresh, idle state at time 0.

    Parameters
    ----------
    limits : EngineLimits
    cost : Tables
    capacity : int
        Request slots; grow later with :func:`grow`.
    spans : int
        Rows of the span log; 0 keeps none.

    Notes
    -----
    Segments and holds are allocated at their bound and never touched before use, so the operating system
    backs only what is used.
    """
    d, bs = limits.lockstep_ranks, limits.block_size
    blocks_per_request = -(-limits.max_model_len // bs) + 1
    engine = np.zeros(1, ENGINE)
    e = engine[0]
    e["max_num_seqs"], e["budget"] = limits.max_num_seqs, limits.max_num_batched_tokens
    e["block_size"], e["num_blocks"], e["max_model_len"] = bs, limits.num_blocks, limits.max_model_len
    e["threshold"], e["adaptive"] = limits.long_prefill_token_threshold, limits.long_prefill_adaptive
    e["watermark"], e["caching"] = limits.watermark_blocks, limits.prefix_caching
    e["chunked"], e["priority"] = limits.chunked_prefill, limits.policy == "priority"
    e["asynchronous"], e["spec_tokens"] = limits.async_scheduling, limits.num_speculative_tokens
    e["host_s"], e["overlap"], e["prefill_attn_s"] = cost.host_s, cost.overlap, cost.prefill_attn_s
    e["seg_free"] = e["hold_free"] = NONE
    rank = np.zeros(d, RANK)
    for name in ("run_head", "run_tail", "wait_head", "wait_tail", "lru_head", "lru_tail"):
        rank[name] = NONE
    rank["free_keyless"] = limits.num_blocks
    holds = d * limits.max_num_seqs * blocks_per_request if limits.prefix_caching else 1
    state = State(
        engine=engine,
        rank=rank,
        request=fresh(capacity),
        slot=_slots(d, capacity),
        segment=np.empty(d * limits.num_blocks if limits.prefix_caching else 1, SEGMENT),
        hold=np.empty(holds, HOLD),
        hit=np.empty(blocks_per_request, HIT),
        residues=np.zeros((d, bs), np.int64),
        sums=np.zeros((d, len(cost.context), 3), np.int64),
        gauge=np.empty(GAUGE_ROWS, GAUGE),
        span=np.empty(spans, SPAN),
        dense=cost.dense,
        kv_read_s=cost.kv_read_s,
        context=cost.context,
        lines=np.empty((d + 1, 2)),
    )
    return _readable(state)


def restart(state: State, idle: State, requests: int) -> None:
    """Put a state back to `idle`, a fresh one of the same limits, for its first `requests` slots to be filled anew."""
    for name in ("engine", "rank", "residues", "sums"):
        getattr(state, name)[:] = getattr(idle, name)
    state.slot[:, :requests] = _slots(len(state.rank), requests)


def _readable(state: State) -> State:
    """Without the compiler, records need attribute access from Python."""
    if not numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return state
    return State(*(readable(a) for a in state))


def readable(array: np.ndarray) -> np.ndarray:
    """Return the array as the kernel's code reads it, compiled or not."""
    return array.view(np.recarray) if array.dtype.names and numba.config.DISABLE_JIT else array  # type: ignore[attr-defined]


def fresh(requests: int) -> np.ndarray:
    """REQUEST records of which nothing is known yet, as `start` to `out` will be filled in."""
    q = np.zeros(requests, REQUEST)
    q["rate"] = FP
    q["admit_s"] = q["first_token_s"] = q["finish_s"] = -1.0
    for name in ("parent", "hold_head", "run_first", "run_last", "heap_pos"):
        q[name] = NONE
    q["sched_step"] = q["idle_step"] = -2
    return q


def _slots(d: int, capacity: int) -> np.ndarray:
    slot = np.zeros((d, capacity), SLOT)
    slot["first_segment"] = slot["last_segment"] = NONE
    return slot


def _table(dtype: np.dtype, *columns: np.ndarray) -> np.ndarray:
    out = np.empty(len(columns[0]), dtype)
    for name, column in zip(dtype.names or (), columns, strict=True):
        out[name] = column
    return out


def grow(state: State, capacity: int) -> State:
    """The same state with room for `capacity` requests."""
    request = fresh(capacity)
    request[: len(state.request)] = state.request
    slot = _slots(len(state.rank), capacity)
    slot[:, : len(state.request)] = state.slot
    return _readable(state._replace(request=request, slot=slot))


def lengthen_spans(state: State) -> State:
    """The same state with room for twice as many rows of the span log."""
    span = np.empty(2 * len(state.span), SPAN)
    span[: len(state.span)] = state.span
    return _readable(state._replace(span=span))


def clone(state: State) -> State:
    """Independent copy of everything that a step can change."""
    e = state.engine[0]
    segment, hold = np.empty_like(state.segment), np.empty_like(state.hold)
    segment[: e["seg_top"]] = state.segment[: e["seg_top"]]
    hold[: e["hold_top"]] = state.hold[: e["hold_top"]]
    names = ("engine", "rank", "request", "slot", "residues", "sums", "gauge", "span")
    return state._replace(segment=segment, hold=hold, **{name: getattr(state, name).copy() for name in names})

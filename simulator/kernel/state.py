"""State of one replica as flat record arrays: what the compiled kernel reads and writes, and what a snapshot copies."""

import math
import mmap
import sys
from typing import NamedTuple

import numba
import numpy as np

from rollsim.simulator.costs import StepCost
from rollsim.simulator.kernel.records import (
    CONTEXT,
    DENSE,
    ENGINE,
    GAUGE,
    HIT,
    HOLD,
    RANK,
    REQUEST,
    SEGMENT,
    SLOT,
    SPAN,
)
from rollsim.simulator.limits import EngineLimits

# Python names it from 3.13 on.
_NORESERVE = 0x4000

FP_BITS = 10
FP = 1 << FP_BITS
NONE = -1

# Life of a request. DECODING members live in the rank's event heap and advance with its decode clock;
# ENDING ones (asynchronous scheduling) have their last token in flight and keep slot and blocks for one more call.
WAITING, RUNNING, DECODING, ENDING, FINISHED, ABORTED = 1, 2, 3, 4, 5, 6

# Why the head of `waiting` cannot be admitted before something ends: no slot or blocks, or no tokens left in a step.
NO_ROOM, NO_TOKENS = 1, 2

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
    """The same state with room for `capacity` requests; also of many replicas, as `stacked`."""
    request = np.empty((*state.request.shape[:-1], capacity), REQUEST)
    slot = np.empty((*state.slot.shape[:-1], capacity), SLOT)
    before = state.request.shape[-1]
    request[..., :before], request[..., before:] = state.request, fresh(1)
    slot[..., :before], slot[..., before:] = state.slot, _slots(1, 1)[0]
    return _readable(state._replace(request=request, slot=slot))


def lengthen_spans(state: State) -> State:
    """The same state with room for twice as many rows of the span log; also of many replicas, as `stacked`."""
    before = state.span.shape[-1]
    span = np.empty((*state.span.shape[:-1], 2 * before), SPAN)
    span[..., :before] = state.span
    return _readable(state._replace(span=span))


_OF_REPLICA = ("engine", "rank", "request", "slot", "segment", "hold", "residues", "sums", "gauge", "span")


def stacked(one: State, replicas: int) -> State:
    """Fresh states of equal replicas: arrays of a replica get a dimension in front, tables and scratch are shared."""
    many = {name: _unbacked((replicas, *getattr(one, name).shape), getattr(one, name).dtype) for name in _OF_REPLICA}
    for name in ("engine", "rank", "request", "slot", "residues", "sums"):
        many[name][:] = getattr(one, name)
    return _readable(one._replace(**many))


def of_replica(states: State, i: int) -> State:
    """State of replica i of `stacked` ones."""
    return states._replace(**{name: getattr(states, name)[i] for name in _OF_REPLICA})


def _unbacked(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array for which the system sets no memory aside before it is written: most of it never is."""
    if sys.platform == "win32":
        return np.empty(shape, dtype)
    size = max(1, math.prod(shape) * dtype.itemsize)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (_NORESERVE if sys.platform == "linux" else 0)
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), dtype, math.prod(shape)).reshape(shape)


def clone(state: State) -> State:
    """Independent copy of everything that a step can change."""
    e = state.engine[0]
    segment, hold = np.empty_like(state.segment), np.empty_like(state.hold)
    segment[: e["seg_top"]] = state.segment[: e["seg_top"]]
    hold[: e["hold_top"]] = state.hold[: e["hold_top"]]
    names = ("engine", "rank", "request", "slot", "residues", "sums", "gauge", "span")
    return state._replace(segment=segment, hold=hold, **{name: getattr(state, name).copy() for name in names})

"""The records of a replica's state: what each array of `state.State` holds.

One index names a request in every array of a replica. Token progress is integer arithmetic in units of
1/FP token, so that k steps taken at once and k single steps give the same bits.
"""

import numba
import numpy as np

# Interpreted, the kernel computes in numpy scalars, which do not widen by themselves.
_INT = "i8" if numba.config.DISABLE_JIT else "i4"  # type: ignore[attr-defined]

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
        ("traced", "i8"),
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
        # The last step, and its parts without the host's.
        ("step_s", "f8"),
        ("step_decode_s", "f8"),
        ("step_prefill_s", "f8"),
        ("step_recompute_s", "f8"),
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
        ("span_token_s", "f8"),
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
# with weights `version`, the first one of the stay at token_s (-1: it was prefill to its end), from KV whose oldest
# part is of `kv_version`; `reason` is the state that the request goes to.
SPAN = np.dtype(
    [
        ("request", _INT),
        ("version", _INT),
        ("kv_version", _INT),
        ("t0_s", "f8"),
        ("token_s", "f8"),
        ("t1_s", "f8"),
        ("cached_tokens", _INT),
        ("out_before", _INT),
        ("out_after", _INT),
        ("reason", _INT),
    ],
    align=True,
)

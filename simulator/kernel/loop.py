"""The engine's loop: jumps over pure decode, walks every other step, until a time, a number of ends, or idleness."""

import numpy as np

from rollsim.simulator.kernel import blocks, cost, decode, ends, jump, schedule, touches
from rollsim.simulator.kernel.jit import i64, inline, jit
from rollsim.simulator.kernel.state import (
    DECODING,
    ENDING,
    FP_BITS,
    GAUGE_ROWS,
    RUNNING,
)

IDLE, TIME, ENDS, STEPS, LOG_FULL = 0, 1, 2, 3, 4


@jit
def _log_gauge(s, forced):
    """Append the replica's state to the gauge log, unless the last row is too recent and this one is not `forced`.

    A full log is thinned by time, so that it covers a run of any length evenly, its last events included.
    """
    e = s.engine[0]
    if e.gauge_n > 0 and not forced and e.now_s < s.gauge[e.gauge_n - 1].t_s + e.gauge_dt_s:
        return
    if e.gauge_n == GAUGE_ROWS:
        e.gauge_dt_s = 2.0 * (e.now_s - s.gauge[0].t_s) / GAUGE_ROWS
        kept = 1
        for i in range(1, GAUGE_ROWS):
            last_s = s.gauge[kept - 1].t_s
            if s.gauge[i].t_s > last_s and s.gauge[i].t_s >= last_s + e.gauge_dt_s:
                s.gauge[kept] = s.gauge[i]
                kept += 1
        e.gauge_n = kept
    row = s.gauge[e.gauge_n]
    row.t_s, row.preemptions = e.now_s, e.preemptions
    row.running, row.waiting, row.blocks = 0, 0, 0
    for d in range(len(s.rank)):
        row.running += s.rank[d].n_running
        row.waiting += s.rank[d].n_waiting
        row.blocks += e.num_blocks - blocks.free_blocks(s, d)
    e.gauge_n += 1


@jit
def _leap(s, k):
    """K pure decode steps."""
    e = s.engine[0]
    duration = jump.duration_s(s, k)
    jump.take_blocks(s, k)
    if e.traced:
        for d in range(len(s.rank)):
            schedule.trace(s, d)
    e.step += k
    if e.asynchronous:
        for d in range(len(s.rank)):
            ends.deliver(s, d)
    e.now_s += duration
    for d in range(len(s.rank)):
        jump.due(s, d)


@inline
def _yield_tokens(s, d):
    """After a walked step, in the order served: a completed prefill starts to decode, a request at its end leaves."""
    e = s.engine[0]
    rank = s.rank[d]
    for i in range(rank.n_sched):
        row = s.slot[d, i]
        r = i64(row.scheduled)
        q = s.request[r]
        if q.state == DECODING:
            if q.sharing and q.registered >= q.shared // e.block_size:
                decode.share_ends(s, d, r)
            while q.state == DECODING and q.key <= rank.clock:
                if not decode.is_last(s, d, r):
                    decode.cross_knot(s, d, r)
                elif e.asynchronous:
                    ends.last_token_sent(s, d, r)
                else:
                    ends.finish(s, d, r)
            continue
        if q.state != RUNNING:
            continue
        q.computed += row.tokens - row.drafts
        if q.computed < q.prompt + q.out:
            continue
        q.span_token_s = e.now_s
        last = q.out + 1 >= q.target
        if not e.asynchronous:
            q.out += 1
            if q.first_token_s < 0:
                q.first_token_s = e.now_s
            if last:
                ends.finish(s, d, r)
                continue
        elif last:
            q.state, q.inflight = ENDING, 1
            rank.n_ending += 1
            rank.blocked = 0
        if e.asynchronous and (last or q.first_token_s < 0):
            s.slot[d, rank.n_pend].pending = r
            rank.n_pend += 1
        if not last:
            decode.enter(s, d, r, q.computed << FP_BITS)


@jit
def _walk(s):
    """One step, request by request."""
    e = s.engine[0]
    d_ranks = len(s.rank)
    scheduled = 0
    for d in range(d_ranks):
        schedule.schedule(s, d)
        scheduled += s.rank[d].n_sched
    e.step += 1
    if e.asynchronous:
        for d in range(d_ranks):
            ends.deliver(s, d)
    if scheduled > 0 or e.n_unfinished > 0:
        e.now_s += cost.step_s(s)
    for d in range(d_ranks):
        if s.rank[d].steady:
            jump.due(s, d)
        _yield_tokens(s, d)


@jit
def run(s, until_s, max_ends, max_steps):
    """Advance the replica.

    Steps that start before `until_s` are taken, until `max_ends` requests have ended, `max_steps` steps are done
    or nothing is left. Returns the reason: IDLE, TIME, ENDS, STEPS, or LOG_FULL (make `span` longer, call again).
    """
    e = s.engine[0]
    stop_ends = e.n_finished + max_ends
    stop_step = e.step + max_steps
    while e.n_unfinished > 0 and not e.paused:
        if e.now_s >= until_s:
            return TIME
        if e.n_finished >= stop_ends:
            return ENDS
        if e.step >= stop_step:
            return STEPS
        if 0 < len(s.span) < e.span_n + min(e.n_unfinished, e.max_num_seqs * len(s.rank)):
            return LOG_FULL
        k = jump.length(s, until_s, stop_step - e.step)
        if k > 0:
            _leap(s, k)
        else:
            _walk(s)
        e.events += 1
        _log_gauge(s, e.n_unfinished == 0)
    return IDLE


@jit
def feed(s, arrival_s, first):
    """Run requests first.. to the end of all work, each queued at its arrival; they are filled and in order of arrival.

    Returns the number of requests queued, and IDLE, or LOG_FULL (make `span` longer, call again with that number). The
    last row of the gauge log is the end of the run.
    """
    e = s.engine[0]
    n = first
    never = i64(1 << 62)
    while True:
        until_s = arrival_s[n] if n < len(arrival_s) else np.inf
        reason = run(s, until_s, never, never)
        if reason == LOG_FULL:
            return n, reason
        if n == len(arrival_s):
            return n, reason
        e.now_s = max(e.now_s, until_s)
        touches.enqueue(s, n)
        if e.n_unfinished == 1:
            _log_gauge(s, True)
        n += 1

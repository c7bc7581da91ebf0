"""How a request leaves a rank's running set: preempted, ended or taken out; and the row its incarnation leaves."""

from rollsim.simulator.kernel import blocks, decode, lists
from rollsim.simulator.kernel.jit import i64, inline, jit
from rollsim.simulator.kernel.state import (
    ABORTED,
    DECODING,
    ENDING,
    FINISHED,
    FP_BITS,
    NO_TOKENS,
    NONE,
    WAITING,
)


@inline
def log_span(s, r, out, reason):
    """One row for the tokens of request r that were sampled since its last one, `out` in all."""
    e = s.engine[0]
    if len(s.span) == 0:
        return
    q = s.request[r]
    row = s.span[e.span_n]
    row.request, row.version, row.kv_version, row.reason = r, q.span_version, q.kv_version, reason
    row.t0_s, row.token_s, row.t1_s = q.span_t0_s, q.span_token_s, e.now_s
    row.cached_tokens, row.out_before, row.out_after = q.span_cached, q.span_out, out
    q.span_t0_s, q.span_cached, q.span_out, q.span_row = e.now_s, 0, out, e.span_n
    e.span_n += 1


@jit
def stop_running(s, d, r):
    """Take request r out of `running`, its blocks released, `out` and `computed` explicit.

    A victim that was already scheduled in the current step (`sched_step`) gives back that step's token, but its
    blocks were taken and given keys at scheduling (rules 5.4, 6.3).
    """
    q = s.request[r]
    e = s.engine[0]
    if q.state == DECODING:
        x = decode.progress_fp(s, r) >> FP_BITS
        owned = decode.owned_blocks(s, r)
        if q.sched_step == e.step:
            blocks.register_served(s, r, s.rank[d].clock)
            owned = max(owned, blocks.blocks_for(s, x + 1))
        else:
            blocks.register_decoded(s, r)
        q.out = decode.output_tokens(s, r)
        q.inflight = min(x + 1 - q.prompt, q.target) - q.out
        decode.leave(s, d, r)
        q.owned = owned
    elif q.state == ENDING:
        s.rank[d].n_ending -= 1
        s.rank[d].n_sharing -= q.sharing
        q.sharing = 0
    blocks.release(s, d, r)
    lists.run_remove(s, d, r)
    s.rank[d].blocked = 0


@inline
def _pend(s, d, r):
    rank = s.rank[d]
    for i in range(rank.n_pend):
        if s.slot[d, i].pending == r:
            return
    s.slot[d, rank.n_pend].pending = r
    rank.n_pend += 1


@jit
def preempt(s, d, r):
    """Preemption by recomputation: all blocks released, generated tokens kept, to the front of `waiting`."""
    q = s.request[r]
    stop_running(s, d, r)
    log_span(s, r, i64(q.out + q.inflight), WAITING)
    q.state = WAITING
    q.computed = 0
    q.preemptions += 1
    s.engine[0].preemptions += 1
    s.slot[d, s.rank[d].n_preempted].preempted = r
    s.rank[d].n_preempted += 1
    if q.inflight:
        _pend(s, d, r)
    lists.wait_front(s, d, r)


@inline
def _close(s, d, r, state):
    q = s.request[r]
    q.state = state
    q.finish_s = s.engine[0].now_s
    s.rank[d].n_unfinished -= 1
    s.engine[0].n_unfinished -= 1


@jit
def finish(s, d, r):
    """Request r has all its tokens, the last one at `now`; it may end from `waiting` (rule 11.4)."""
    q = s.request[r]
    waiting = q.state == WAITING
    if not waiting:
        stop_running(s, d, r)
    q.out, q.inflight = q.target, 0
    if waiting:
        lists.wait_remove(s, d, r)
        s.rank[d].blocked = 0
    else:
        log_span(s, r, i64(q.out), FINISHED)
    _close(s, d, r, FINISHED)
    s.slot[0, s.engine[0].n_finished].finished = r
    s.engine[0].n_finished += 1


@jit
def take_out(s, r):
    """Abort request r between two steps; returns its known tokens whose KV is here."""
    q = s.request[r]
    d = i64(q.rank)
    kv_tokens = 0
    waiting = q.state == WAITING
    if waiting:
        lists.wait_remove(s, d, r)
        s.rank[d].blocked = 0
    else:
        kv_tokens = decode.computed_tokens(s, r)
        stop_running(s, d, r)
        kv_tokens = min(kv_tokens, q.prompt + q.out)
    if len(s.span) > 0 and q.out < q.span_out:
        # The last row counts tokens that were in flight and are dropped.
        s.span[q.span_row].out_after = q.out
        q.span_out = q.out
    if not waiting:
        log_span(s, r, i64(q.out), ABORTED)
    q.inflight = 0
    _close(s, d, r, ABORTED)
    return kv_tokens


@jit
def preempt_all(s, d):
    """Preempt every running request of a rank, the last first, and empty its prefix cache."""
    while s.rank[d].run_tail != NONE:
        preempt(s, d, s.rank[d].run_tail)
    blocks.drop_cache(s, d)
    s.rank[d].blocked = 0


@inline
def last_token_sent(s, d, r):
    """Asynchronous scheduling: the last token of request r is in flight; its slot and blocks stay one more call."""
    q = s.request[r]
    blocks.register_decoded(s, r)
    out, sharing = decode.output_tokens(s, r), q.sharing
    decode.leave(s, d, r)
    q.state = ENDING
    # Its last block may still be a copy of shared content: the order of copies is the order of registration.
    q.sharing = sharing
    s.rank[d].n_sharing += sharing
    q.out = out
    q.inflight = q.target - out
    s.rank[d].n_ending += 1
    if s.rank[d].blocked == NO_TOKENS:
        s.rank[d].blocked = 0
    s.slot[d, s.rank[d].n_pend].pending = r
    s.rank[d].n_pend += 1


@inline
def _register_delivered(s, r):
    """Keys of running request r when the output of the previous batch has arrived (rule 11.5)."""
    if s.request[r].state == ENDING:
        blocks.register(s, r, i64(s.request[r].computed))
    elif s.request[r].state == DECODING:
        blocks.register_decoded(s, r)


@jit
def deliver(s, d):
    """Asynchronous scheduling: process the output of the previous batch at `now` (rules 11.1, 11.4, 11.5)."""
    rank = s.rank[d]
    if rank.n_sharing > 0:
        r = rank.run_head
        while r != NONE:
            _register_delivered(s, r)
            r = i64(s.request[r].next)
    for i in range(rank.n_pend):
        r = i64(s.slot[d, i].pending)
        q = s.request[r]
        if q.state == ABORTED:
            continue
        if q.first_token_s < 0:
            q.first_token_s = s.engine[0].now_s
        if q.state == DECODING:
            continue
        q.out += q.inflight
        q.inflight = 0
        rank.blocked = 0
        if q.out >= q.target:
            _register_delivered(s, r)
            finish(s, d, r)
    rank.n_pend = 0

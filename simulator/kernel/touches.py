"""Touches: what the world does to a replica between two steps."""

from rollsim.simulator.kernel import blocks, decode, ends, lists
from rollsim.simulator.kernel.jit import i64, inline, jit
from rollsim.simulator.kernel.state import DECODING, NONE, WAITING


@jit
def enqueue(s, r):
    """Put the filled request record r into the waiting queue of its rank."""
    e = s.engine[0]
    q = s.request[r]
    q.state = WAITING
    q.arrival = e.arrivals
    e.arrivals += 1
    e.n_unfinished += 1
    s.rank[q.rank].n_unfinished += 1
    lists.wait_back(s, i64(q.rank), r)
    if s.rank[q.rank].wait_head == r or e.adaptive:
        s.rank[q.rank].blocked = 0


@jit
def take_out(s, r):
    """Abort request r; returns the tokens whose KV it had."""
    return ends.take_out(s, r)


@jit
def preempt_all(s):
    """Preempt every running request, the last first, and empty the prefix cache: the KV is no longer valid."""
    for d in range(len(s.rank)):
        s.rank[d].n_preempted = 0
        ends.preempt_all(s, d)


@jit
def set_version(s, version):
    """New weights, of a higher version: blocks begun from now on carry it, and tokens are sampled with it."""
    for d in range(len(s.rank)):
        r = i64(s.rank[d].run_head)
        while r != NONE:
            _leave_version(s, r)
            s.request[r].span_version = version
            r = i64(s.request[r].next)
    s.engine[0].version = version


@inline
def _leave_version(s, r):
    """Close what running request r made with the weights so far: the keys of its full blocks, and its span."""
    q = s.request[r]
    if q.state == DECODING:
        blocks.register_decoded(s, r)
    computed = i64(decode.computed_tokens(s, r))
    if q.registered >= q.old_blocks:
        q.old_version = s.engine[0].version
    q.old_blocks = blocks.blocks_for(s, computed)
    sampled = q.out + q.inflight
    if q.state == DECODING:
        sampled = computed + 1 - q.prompt
    if sampled > q.span_out:
        ends.log_span(s, r, i64(sampled), i64(q.state))


@jit
def set_rate(s, r, rate_fp, drafts):
    """Request r makes rate_fp / FP tokens per decode step from now on, verifying `drafts` drafts."""
    q = s.request[r]
    if q.state != DECODING:
        q.rate, q.drafts = rate_fp, drafts
        return
    d = i64(q.rank)
    blocks.register_decoded(s, r)
    x_fp = decode.progress_fp(s, r)
    owned = decode.owned_blocks(s, r)
    out = decode.output_tokens(s, r)
    decode.leave(s, d, r)
    q.owned, q.out = owned, out
    q.rate, q.drafts = rate_fp, drafts
    decode.enter(s, d, r, x_fp)
    s.rank[d].blocked = 0

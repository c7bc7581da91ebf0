"""Touches: what the world does to a replica between two steps."""

from rollsim.simulator.kernel import blocks, decode, ends, lists
from rollsim.simulator.kernel.jit import i64, jit
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
    if s.rank[q.rank].wait_head == r:
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
    """New weights; blocks filled from now on carry `version`."""
    for d in range(len(s.rank)):
        r = s.rank[d].run_head
        while r != NONE:
            blocks.register_decoded(s, r)
            r = i64(s.request[r].next)
    s.engine[0].version = version


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

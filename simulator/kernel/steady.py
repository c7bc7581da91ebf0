"""One step of a rank whose running requests all decode: served at once, not one by one.

Says the same as `schedule.serve` where the order of serving does not matter: every member gets its tokens, and either
the pool has the blocks, or single blocks are wanted and the last of `running` are preempted until it has them.
"""

from rollsim.simulator.kernel import blocks, decode, ends
from rollsim.simulator.kernel.jit import i64, inline, jit
from rollsim.simulator.kernel.state import DECODING, FP_BITS


@inline
def pure(s, d):
    """Whether every running request of rank d decodes (or has its last token in flight) and gets all it asks for."""
    e = s.engine[0]
    rank = s.rank[d]
    if rank.n_decoding + rank.n_ending != rank.n_running or rank.n_sharing > 0 or rank.demand > e.budget:
        return False
    return rank.n_odd == 0 or (e.threshold == 0 and not e.adaptive)


@inline
def uncut(s, d, k):
    """Largest number of steps, at most k, before max_model_len cuts a member's drafts."""
    rank = s.rank[d]
    if rank.n_odd == 0:
        return k
    for i in range(rank.n_decoding):
        q = s.request[s.slot[d, i].heap]
        if q.drafts > 0:
            last = ((s.engine[0].max_model_len - 1 - q.drafts) << FP_BITS) - 1
            k = min(k, (last - q.start) // q.rate - rank.clock + 1)
    return max(k, 0)


@inline
def own_blocks(s, d, k):
    """Note the blocks that k decode steps give to members that keep count of them."""
    rank = s.rank[d]
    if rank.n_odd == 0:
        return
    for i in range(rank.n_decoding):
        q = s.request[s.slot[d, i].heap]
        if q.odd:
            x = (q.start + q.rate * (rank.clock + k - 1)) >> FP_BITS
            q.owned = max(q.owned, blocks.blocks_for(s, x + 1 + q.drafts))


@inline
def _wants_block(s, r):
    """Whether even request r needs a block in this step: its last one is full."""
    return s.request[r].state == DECODING and decode.computed_tokens(s, r) % s.engine[0].block_size == 0


@inline
def can_serve(s, d):
    """Whether `serve` may stand for the walk in this step."""
    rank = s.rank[d]
    if not pure(s, d) or uncut(s, d, 1) == 0:
        return False
    alike = rank.n_odd == 0 and not s.engine[0].priority
    return alike or decode.blocks_in(s, d, 1) <= blocks.free_blocks(s, d)


@jit
def serve(s, d):
    """Serve all members, preempting the last ones while blocks are short; returns the budget that is left."""
    rank = s.rank[d]
    need = decode.blocks_in(s, d, 1)
    while True:
        n = min(need, blocks.free_blocks(s, d))
        blocks.take(s, d, n)
        need -= n
        if need == 0:
            break
        victim = i64(rank.run_tail)
        need -= _wants_block(s, victim)
        ends.preempt(s, d, victim)
    own_blocks(s, d, 1)
    rank.sched_tokens = rank.demand
    rank.decode_b = rank.n_decoding
    rank.decode_u = decode.kv_read(s, d)[0]
    rank.n_served = rank.n_decoding
    rank.clock += 1
    return s.engine[0].budget - rank.demand

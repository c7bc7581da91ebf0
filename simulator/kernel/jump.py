"""k pure decode steps of all ranks at once."""

from rollsim.simulator.kernel import blocks, cost, decode, ends, schedule
from rollsim.simulator.kernel.jit import i64, jit
from rollsim.simulator.kernel.state import FP_BITS


@jit
def _steady(s, d):
    """Whether the next step of rank d is pure decode with nobody admitted, preempted or cut short of tokens."""
    e = s.engine[0]
    rank = s.rank[d]
    if rank.n_decoding + rank.n_ending != rank.n_running or rank.n_sharing > 0:
        return False
    if rank.n_waiting > 0 and not rank.blocked:
        return False
    if rank.demand > e.budget:
        return False
    return rank.n_odd == 0 or (e.threshold == 0 and not e.adaptive)


@jit
def _room(s, d, k):
    """Largest number of steps, at most k, for which rank d has the blocks (0: not even one)."""
    free = blocks.free_blocks(s, d)
    bs = s.engine[0].block_size
    if s.rank[d].n_odd == 0 and s.rank[d].n_decoding * (k // bs + 1) <= free:
        return k
    if decode.blocks_in(s, d, k) <= free:
        return k
    low, high = 0, k
    while high - low > 1:
        middle = (low + high) // 2
        if decode.blocks_in(s, d, middle) <= free:
            low = middle
        else:
            high = middle
    return low


@jit
def _uncut(s, d, k):
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


@jit
def length(s, until_s, max_steps):
    """Number of steps that can be taken at once from here; 0 when the next one must be walked."""
    k = max_steps
    members = 0
    for d in range(len(s.rank)):
        rank = s.rank[d]
        if not _steady(s, d):
            return 0
        members += rank.n_decoding
        if rank.n_ending > 0:
            k = min(k, 1)
        if rank.n_decoding > 0:
            k = min(k, s.request[s.slot[d, 0].heap].key - rank.clock)
            k = _room(s, d, _uncut(s, d, k))
            if k == 0:
                return 0
    if members == 0:
        return 0
    n = cost.set_lines(s)
    duration = until_s - s.engine[0].now_s
    if cost.envelope_s(s, 0, n, k) > duration:
        k = cost.steps_until(s, n, k, duration)
    return k


@jit
def take_blocks(s, k):
    """Scheduling phase of k pure decode steps: blocks from the pool, clocks forward."""
    e = s.engine[0]
    for d in range(len(s.rank)):
        rank = s.rank[d]
        need = decode.blocks_in(s, d, k)
        if rank.n_odd > 0:
            for i in range(rank.n_decoding):
                q = s.request[s.slot[d, i].heap]
                if q.odd:
                    x = (q.start + q.rate * (rank.clock + k - 1)) >> FP_BITS
                    q.owned = max(q.owned, blocks.blocks_for(s, x + 1 + q.drafts))
        blocks.take(s, d, need)
        rank.clock += k
        rank.n_preempted = 0
        schedule.note_peak(s, d)
        e.decode_tokens += rank.demand * k


@jit
def duration_s(s, k):
    """Time of the k steps [s], and its split over the engine's accounts; `s.lines` is set."""
    e = s.engine[0]
    n = len(s.rank)
    if e.overlap:
        total = cost.envelope_s(s, 0, n + 1, k)
        gpu = cost.envelope_s(s, 0, n, k)
    else:
        total = cost.envelope_s(s, 0, n, k)
        gpu = total - k * e.host_s
    e.decode_time_s += gpu
    e.host_time_s += total - gpu
    return total


@jit
def due(s):
    """Events that the clocks have reached: context knots, and ends (asynchronous: the last token is in flight now)."""
    e = s.engine[0]
    for d in range(len(s.rank)):
        rank = s.rank[d]
        while rank.n_decoding > 0 and s.request[s.slot[d, 0].heap].key <= rank.clock:
            r = i64(s.slot[d, 0].heap)
            if not decode.is_last(s, d, r):
                decode.cross_knot(s, d, r)
            elif e.asynchronous:
                ends.last_token_sent(s, d, r)
            else:
                ends.finish(s, d, r)

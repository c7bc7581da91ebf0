"""k pure decode steps of all ranks at once."""

from rollsim.simulator.kernel import blocks, cost, decode, ends, schedule, steady
from rollsim.simulator.kernel.jit import i64, inline


@inline
def _room(s, d, k):
    """Largest number of steps, at most k, for which rank d has the blocks (0: not even one)."""
    free = blocks.free_blocks(s, d)
    if s.rank[d].n_odd == 0:
        return min(k, decode.steps_in(s, d, free))
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


@inline
def length(s, until_s, max_steps):
    """Number of steps that can be taken at once from here; 0 when the next one must be walked."""
    k = max_steps
    members = 0
    for d in range(len(s.rank)):
        rank = s.rank[d]
        if not steady.pure(s, d) or (rank.n_waiting > 0 and not rank.blocked):
            return 0
        members += rank.n_decoding
        if rank.n_ending > 0:
            k = min(k, 1)
        if rank.n_decoding > 0:
            k = min(k, s.request[s.slot[d, 0].heap].key - rank.clock)
            k = _room(s, d, steady.uncut(s, d, k))
            if k == 0:
                return 0
    if members == 0:
        return 0
    n = cost.set_lines(s)
    duration = until_s - s.engine[0].now_s
    if cost.envelope_s(s, 0, n, k) > duration:
        k = cost.steps_until(s, n, k, duration)
    return k


@inline
def take_blocks(s, k):
    """Scheduling phase of k pure decode steps: blocks from the pool, clocks forward."""
    for d in range(len(s.rank)):
        rank = s.rank[d]
        need = decode.blocks_in(s, d, k)
        steady.own_blocks(s, d, k)
        blocks.take(s, d, need)
        rank.clock += k
        rank.n_preempted = 0
        schedule.note_peak(s, d)


@inline
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
    e.step_s = cost.highest(s, n + 1 if e.overlap else n, k - 1)
    e.step_decode_s = cost.highest(s, n, k - 1) - (0.0 if e.overlap else e.host_s)
    e.step_prefill_s = e.step_recompute_s = 0.0
    return total


@inline
def due(s, d):
    """Events that a rank's clock has reached: context knots, and ends (asynchronous: the last token is in flight)."""
    rank = s.rank[d]
    while rank.n_decoding > 0 and s.request[s.slot[d, 0].heap].key <= rank.clock:
        r = i64(s.slot[d, 0].heap)
        if not decode.is_last(s, d, r):
            decode.cross_knot(s, d, r)
        elif s.engine[0].asynchronous:
            ends.last_token_sent(s, d, r)
        else:
            ends.finish(s, d, r)

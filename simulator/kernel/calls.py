"""What one replica of a pool does and tells between touches: take requests in, run ahead, record what ended."""

import numpy as np

from rollsim.simulator.kernel import blocks, cost, decode, jump, loop, touches
from rollsim.simulator.kernel.jit import i64, inline, jit
from rollsim.simulator.kernel.state import DECODING, FP_BITS, NONE, WAITING

# A literal would be a type of its own, and compile each callee once more.
ANY, ONE = i64(1 << 62), i64(1)
# A bound on the time of many steps must not exceed their sum by rounding.
_SLACK = 1 - 1e-9


@jit
def take_in(s, rows, numbers, owner, first, rate, drafts):
    """Queue trajectories as requests first.., in the order given; owner[request] becomes the trajectory's number.

    Neighbours of one group share the prompt of the first of them. One that comes back with tokens is as a request that
    was preempted: its KV is computed again.
    """
    lead, group = NONE, i64(NONE)
    for i in range(len(numbers)):
        r = first + i
        row = rows[numbers[i]]
        q = s.request[r]
        owner[r] = numbers[i]
        row.request = r
        q.prompt, q.target, q.out = row.prompt_tokens, row.target_tokens, row.output_tokens
        q.kv_version = s.engine[0].version
        q.rate, q.drafts = rate, drafts
        if q.out > 0:
            q.preemptions = 1
            q.first_token_s = row.t_first_token_s
        if row.group == group:
            q.parent, q.shared = lead, q.prompt
        else:
            lead, group = r, i64(row.group)
        if len(s.rank) > 1:
            for d in range(1, len(s.rank)):
                if s.rank[d].n_unfinished < s.rank[q.rank].n_unfinished:
                    q.rank = d
        touches.enqueue(s, r)


@inline
def _ending(s):
    """Whether a last token is in flight (asynchronous scheduling): the step that starts now delivers it.

    One that was preempted with its last token in flight waits, and ends all the same.
    """
    for d in range(len(s.rank)):
        if s.rank[d].n_ending > 0:
            return True
        for i in range(s.rank[d].n_pend):
            q = s.request[i64(s.slot[d, i].pending)]
            if q.state == WAITING and q.out + q.inflight >= q.target:
                return True
    return False


@inline
def next_event_s(s):
    """When the batch changes next if nobody touches it [s]: now if the next step tells more, never if it stands.

    The next step tells more if it must be walked, or delivers a last token that is in flight (asynchronous scheduling).
    Changes nothing but scratch.
    """
    e = s.engine[0]
    if e.n_unfinished == 0 or e.paused:
        return np.inf
    if _ending(s):
        return e.now_s
    k = jump.length(s, np.inf, ANY)
    if k == 0:
        return e.now_s
    return e.now_s + cost.envelope_s(s, 0, len(s.rank) + (1 if e.overlap else 0), k)


@inline
def _steps_to_end(s, d):
    """Smallest number of steps in which some request of rank d can end."""
    rank = s.rank[d]
    least = ANY
    for head in (i64(rank.run_head), i64(rank.wait_head)):
        r = head
        while r != NONE:
            q = s.request[r]
            if q.state == DECODING:
                left_fp = ((q.prompt + q.target - 1) << FP_BITS) - decode.progress_fp(s, r)
            else:
                left_fp = i64(q.target - q.out) << FP_BITS
            least = min(least, -(-left_fp // q.rate))
            r = i64(q.next)
    return least


@inline
def _least_step_s(s, steps):
    """Time that none of the next `steps` steps can undercut, if no request ends in them [s].

    Without preemption the batch only grows, and so does what its decode reads.
    """
    e = s.engine[0]
    tokens, read_s = 1, 0.0
    rank = s.rank[0]
    pure = len(s.rank) == 1 and 0 < rank.n_decoding == rank.n_running and rank.n_odd == 0
    if pure and decode.blocks_in(s, 0, steps) <= blocks.free_blocks(s, 0):
        tokens = i64(rank.n_decoding)
        read_s = s.kv_read_s[tokens] * decode.kv_read(s, 0)[0]
    gpu = min(s.dense[tokens].decode_s, s.dense[tokens].mixed_s) + read_s
    return max(e.host_s, gpu) if e.overlap else e.host_s + gpu


@inline
def _soonest_end_s(s, event_s):
    """Time before which no request ends [s]: no end comes before the next change of the batch, at `event_s`."""
    if event_s > s.engine[0].now_s or _ending(s):
        return event_s
    steps = ANY
    for d in range(len(s.rank)):
        steps = min(steps, _steps_to_end(s, d))
    return max(event_s, s.engine[0].now_s + steps * _least_step_s(s, steps) * _SLACK)


@jit
def look(s, horizon_s, recorded):
    """Take whole batch changes up to `horizon_s` or the next end, and so cut no jump that nothing else cuts.

    Returns (reason, next, known): the time of the first end after the `recorded` first ones if it is `known`, else a
    time before which none comes.
    """
    e = s.engine[0]
    reason = loop.TIME
    if e.n_finished > recorded:
        return reason, s.request[s.slot[0, recorded].finished].finish_s, True
    next_s = next_event_s(s)
    while reason != loop.LOG_FULL and next_s <= horizon_s and next_s < np.inf:
        if next_s > e.now_s:
            reason = loop.run(s, next_s, ANY, ANY)
        elif next_s < horizon_s or _ending(s):
            reason = loop.run(s, np.inf, ANY, ONE)
        else:
            break
        if e.n_finished > recorded:
            return reason, s.request[s.slot[0, recorded].finished].finish_s, True
        next_s = next_event_s(s)
    if next_s == np.inf or reason == loop.LOG_FULL:
        return reason, next_s, False
    return reason, _soonest_end_s(s, next_s), False


@inline
def version_at(swap_s, swap_version, n, t_s):
    """Version of the weights of the step that ended at t_s."""
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        if swap_s[middle] < t_s:
            low = middle
        else:
            high = middle
    return swap_version[low]


@jit
def record(s, r, row, swap_s, swap_version, swaps, t_s):
    """Write what request r has done by its end, or by now where it was taken out, into its trajectory's row."""
    q = s.request[r]
    if row.t_start_s < 0 and q.admit_s >= 0:
        row.t_start_s = q.admit_s
    row.cached_tokens = max(row.cached_tokens, 0) + q.cached
    row.recomputed_tokens = max(row.recomputed_tokens, 0) + q.recomputed
    # What comes back with tokens was queued as if it had been preempted once.
    row.num_preempted = max(row.num_preempted, 0) + q.preemptions - (1 if row.output_tokens > 0 else 0)
    if row.output_tokens == 0 and q.out > 0:
        row.t_first_token_s = q.first_token_s
        row.version_start = version_at(swap_s, swap_version, swaps, q.first_token_s)
    if q.out > 0:
        row.version_end = version_at(swap_s, swap_version, swaps, t_s)
    row.output_tokens, row.t_end_s = q.out, t_s

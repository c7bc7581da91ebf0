"""What the world does to the replicas of a pool, many in one compiled call.

A touch at t takes every step that starts before t, so that what follows applies at the first step boundary from t on.
What may need more room (`state.grow`, the logs) says how far it came, and is called again to go on from there.
"""

import numpy as np

from rollsim.simulator.kernel import calls, decode, loop, snapshot, touches
from rollsim.simulator.kernel.calls import ANY
from rollsim.simulator.kernel.fleet import at
from rollsim.simulator.kernel.jit import i64, inline, jit
from rollsim.simulator.kernel.state import FINISHED, NONE


@jit
def _touch(f, saved, i, t_s, pulls):
    """Bring replica i to the first step boundary from t_s on; False: make room in the logs and call again."""
    s, own = at(f.state, i), f.replica[i]
    e = s.engine[0]
    if own.saved and e.now_s > t_s:
        snapshot.copy(s, at(saved, i), i64(own.window), i64(own.n))
    own.saved, own.foreseen = 0, 0
    if loop.run(s, t_s, ANY, ANY) == loop.LOG_FULL:
        return False
    # Asynchronous ends at t_s that were recorded are those of the step that starts now.
    while e.n_finished < own.recorded:
        if loop.run(s, np.inf, i64(own.recorded - e.n_finished), ANY) == loop.LOG_FULL:
            return False
    if len(s.span) > 0 and len(s.span) < e.span_n + e.max_num_seqs * len(s.rank):
        return False
    if e.now_s < t_s:
        if f.used[1] == len(f.idle):
            return False
        row = f.idle[f.used[1]]
        row.t0_s, row.t1_s, row.replica, row.pulls = e.now_s, t_s, i, pulls
        f.used[1] += 1
        e.now_s, e.step_s = t_s, 0.0
    settle(s, own)
    return True


@inline
def settle(s, own):
    """Note what is known of the next end without a look."""
    own.next_s, own.known = s.engine[0].now_s, 0
    if s.engine[0].n_finished > own.recorded:
        own.next_s, own.known = s.request[s.slot[0, own.recorded].finished].finish_s, 1


@jit
def touch(f, saved, t_s, first, end):
    """Touch replicas first..end - 1; returns the first that lacked room."""
    for i in range(first, end):
        if not _touch(f, saved, i64(i), t_s, i64(0)):
            return i
    return end


@jit
def start(f, saved, rows, t_s, numbers):
    """Queue trajectories on the replicas in their rows, those of one replica together; returns how many found room.

    Neighbours of one group share the prompt's KV.
    """
    k = 0
    while k < len(numbers):
        i = i64(rows[numbers[k]].replica)
        end = k
        while end < len(numbers) and rows[numbers[end]].replica == i:
            end += 1
        own = f.replica[i]
        if own.n + end - k > f.owner.shape[1] or not _touch(f, saved, i, t_s, i64(0)):
            return k
        calls.take_in(at(f.state, i), rows, numbers[k:end], f.owner[i], i64(own.n), i64(own.rate), i64(own.drafts))
        own.n += end - k
        f.loads[i] += end - k
        k = end
    return k


@jit
def take_out(f, saved, rows, t_s, numbers, first, live):
    """Take trajectories first.. off their replicas without their KV; `live` says which had not ended.

    Their rows are written as those of ends; what had ended is recorded as such in time. Returns the first for which a
    log lacked room.
    """
    for k in range(first, len(numbers)):
        row = rows[numbers[k]]
        i = i64(row.replica)
        if not _touch(f, saved, i, t_s, i64(0)):
            return k
        s, own = at(f.state, i), f.replica[i]
        r = i64(row.request)
        if s.request[r].state >= FINISHED:
            continue
        touches.take_out(s, r)
        calls.record(s, r, row, f.swap_s[i], f.swap_version[i], i64(own.swaps), s.engine[0].now_s)
        live[k] = True
        f.loads[i] -= 1
    return len(numbers)


@jit
def progress(f, saved, rows, t_s, numbers, first, live, tokens, oldest):
    """How far trajectories first.. have come: whether they have not ended, tokens, and the oldest version in them.

    That of the replica if they have no token yet. Returns the first for which a log lacked room.
    """
    for k in range(first, len(numbers)):
        row = rows[numbers[k]]
        i = i64(row.replica)
        if not _touch(f, saved, i, t_s, i64(0)):
            return k
        s, own = at(f.state, i), f.replica[i]
        r = i64(row.request)
        live[k] = s.request[r].state < FINISHED
        tokens[k] = decode.output_tokens(s, r)
        oldest[k] = own.version
        if row.version_start >= 0:
            oldest[k] = row.version_start
        elif tokens[k] > 0:
            oldest[k] = calls.version_at(f.swap_s[i], f.swap_version[i], i64(own.swaps), s.request[r].first_token_s)
    return len(numbers)


@jit
def set_rates(f, saved, t_s, first, replicas, rates, drafts):
    """Let replicas[first..] make so many tokens / FP in a decode step, verifying drafts; returns as `touch`."""
    for k in range(first, len(replicas)):
        i = replicas[k]
        if not _touch(f, saved, i, t_s, i64(0)):
            return k
        s, own = at(f.state, i), f.replica[i]
        own.rate, own.drafts = rates[k], drafts[k]
        for d in range(len(s.rank)):
            for head in (i64(s.rank[d].run_head), i64(s.rank[d].wait_head)):
                r = head
                while r != NONE:
                    after = i64(s.request[r].next)
                    touches.set_rate(s, r, rates[k], drafts[k])
                    r = after
    return len(replicas)


@jit
def pause(f, saved, t_s, first):
    """Let replicas first.. make no step until `swap`; returns the first that lacked room."""
    for i in range(first, len(f.replica)):
        if not _touch(f, saved, i64(i), t_s, i64(0)):
            return i
        f.state.engine[i, 0].paused = 1
    return len(f.replica)


@jit
def swap(f, saved, t_s, first, end, version, keep_kv, pulls):
    """Replicas first..end - 1 go on at t_s with new weights; returns the first that lacked room.

    KV of the old weights is kept, or recomputed; a replica that nobody uses then forgets its requests.
    """
    for i in range(first, end):
        own = f.replica[i]
        if own.swaps == f.swap_s.shape[1] or not _touch(f, saved, i64(i), t_s, i64(pulls)):
            return i
        s = at(f.state, i)
        if not keep_kv:
            touches.preempt_all(s)
            if s.engine[0].n_unfinished == 0 and own.recorded == s.engine[0].n_finished and len(s.span) == 0:
                _empty(f, i)
        touches.set_version(s, version)
        own.version = version
        f.swap_s[i, own.swaps], f.swap_version[i, own.swaps] = s.engine[0].now_s, version
        own.swaps += 1
        s.engine[0].paused = 0
        own.next_s = s.engine[0].now_s
    return end


@inline
def _empty(f, i):
    """Forget all requests of a replica; none is live and no KV is cached."""
    s, own = at(f.state, i), f.replica[i]
    e = s.engine[0]
    for r in range(own.n):
        s.request[r] = f.fresh[0]
        for d in range(len(s.rank)):
            s.slot[d, r].first_segment = s.slot[d, r].last_segment = NONE
    for d in range(len(s.rank)):
        s.rank[d].n_pend = 0
    e.seg_top, e.hold_top, e.n_finished = 0, 0, 0
    e.seg_free = e.hold_free = NONE
    own.n = own.recorded = own.window = own.swaps = 0

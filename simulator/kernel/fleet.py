"""The replicas of a pool, many in one compiled call: touched, run ahead, and asked who ends next.

A touch at t takes every step that starts before t, so that what follows applies at the first step boundary from t on.
There are two ways between touches. `next_ends` takes replicas no further than nobody can touch them: for who must know
every finish. `foresee` runs them until nothing is left: a snapshot is taken first, an earlier touch comes back to it,
and since nothing touched the replica in between, running again repeats the same bits. With asynchronous scheduling an
end at t is known only when the step that starts at t is under way: who reacts to it touches the boundary after.

What may need more room (`state.grow`, the logs) says how far it came, and is called again to go on from there.
"""

from typing import NamedTuple

import numpy as np

from rollsim.simulator.kernel import calls, decode, loop, snapshot, touches
from rollsim.simulator.kernel.calls import ANY
from rollsim.simulator.kernel.jit import i64, inline, jit
from rollsim.simulator.kernel.state import FINISHED, NONE, State, fresh, grow, lengthen_spans, readable

# A replica: its requests and swaps of weights in use, how many ends were recorded, and what it was last seen to do.
REPLICA = np.dtype(
    [
        ("next_s", "f8"),  # when its next end comes, or a time before which none does
        ("known", "i8"),  # one does come then
        ("foreseen", "i8"),  # it ran until nothing was left
        ("saved", "i8"),  # there is a snapshot to come back to
        ("window", "i8"),  # requests before it change no more
        ("n", "i8"),
        ("recorded", "i8"),
        ("swaps", "i8"),
        ("version", "i8"),
    ],
    align=True,
)
# An interval without steps; `pulls` where weights were pulled meanwhile.
IDLE = np.dtype([("t0_s", "f8"), ("t1_s", "f8"), ("replica", "i8"), ("pulls", "i8")], align=True)


class Fleet(NamedTuple):
    """R replicas of one kind; arrays of `state` have R in front, but for what all share."""

    state: State
    replica: np.ndarray  # (R,) REPLICA
    loads: np.ndarray  # (R,) int64: unfinished trajectories, as far as recorded
    owner: np.ndarray  # (R, N) int64: the trajectory of each request
    swap_s: np.ndarray  # (R, any)
    swap_version: np.ndarray  # (R, any) int64
    ended: np.ndarray  # (all under way,) int64: trajectories whose end was recorded
    idle: np.ndarray  # (any,) IDLE
    used: np.ndarray  # (2,) int64: rows of `ended` and of `idle`
    fresh: np.ndarray  # (1,) REQUEST


@inline
def at(state, i):
    """State of replica i."""
    return State(
        state.engine[i],
        state.rank[i],
        state.request[i],
        state.slot[i],
        state.segment[i],
        state.hold[i],
        state.hit,
        state.residues[i],
        state.sums[i],
        state.gauge[i],
        state.span[i],
        state.dense,
        state.kv_read_s,
        state.context,
        state.lines,
    )


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
    _settle(s, own)
    return True


@inline
def _settle(s, own):
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
        calls.take_in(at(f.state, i), rows, numbers[k:end], f.owner[i], i64(own.n))
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


@inline
def _record(f, rows, i, t_s):
    """Record what ended on replica i up to t_s."""
    s, own = at(f.state, i), f.replica[i]
    before = own.recorded
    while own.recorded < s.engine[0].n_finished:
        r = i64(s.slot[0, own.recorded].finished)
        if s.request[r].finish_s > t_s:
            break
        number = f.owner[i, r]
        finish_s = s.request[r].finish_s
        calls.record(s, r, rows[number], f.swap_s[i], f.swap_version[i], i64(own.swaps), finish_s)
        f.ended[f.used[0]] = number
        f.used[0] += 1
        own.recorded += 1
    f.loads[i] -= own.recorded - before


@jit
def foresee(f, saved, rows, first):
    """Run replicas first.. until nothing is left, and write when their trajectories end into the rows: never if paused.

    Returns the first that lacked room.
    """
    for i in range(first, len(f.replica)):
        own = f.replica[i]
        if f.loads[i] == 0 or own.foreseen:
            continue
        s = at(f.state, i)
        e = s.engine[0]
        if e.paused:
            for r in range(own.n):
                if s.request[r].state < FINISHED:
                    rows[f.owner[i, r]].t_end_s = np.inf
        elif e.n_unfinished > 0:
            if not own.saved:
                own.window = snapshot.window(s, i64(own.window), i64(own.n))
                snapshot.copy(at(saved, i), s, i64(own.window), i64(own.n))
                own.saved = 1
            if loop.run(s, np.inf, ANY, ANY) == loop.LOG_FULL:
                return i
        for k in range(own.recorded, e.n_finished):
            r = i64(s.slot[0, k].finished)
            rows[f.owner[i, r]].t_end_s = s.request[r].finish_s
        own.foreseen = 1
    return len(f.replica)


@jit
def last_end_s(f):
    """Time of the last end on replicas that ran ahead; infinite if there is none, or one never comes."""
    last_s = -np.inf
    for i in range(len(f.replica)):
        if f.loads[i] == 0:
            continue
        s = at(f.state, i)
        if s.engine[0].n_unfinished > 0:
            return np.inf
        last_s = max(last_s, s.request[s.slot[0, s.engine[0].n_finished - 1].finished].finish_s)
    return last_s if last_s > -np.inf else np.inf


@jit
def collect_foreseen(f, rows, t_s):
    """Record what ended up to t_s on replicas that ran ahead."""
    for i in range(len(f.replica)):
        if f.loads[i] > 0:
            _record(f, rows, i, t_s)


@inline
def _look(f, i, until_s, horizon_s):
    own = f.replica[i]
    reason, next_s, known = calls.look(at(f.state, i), until_s, horizon_s, i64(own.recorded))
    own.next_s, own.known = next_s, known
    return reason != loop.LOG_FULL


@jit
def collect(f, rows, t_s):
    """Bring replicas on which something may have ended to t_s and record it; returns whether logs had room."""
    for i in range(len(f.replica)):
        own = f.replica[i]
        while own.next_s <= t_s:
            if not own.known and not _look(f, i64(i), t_s, t_s):
                return False
            if own.known and own.next_s <= t_s:
                _record(f, rows, i, t_s)
                _settle(at(f.state, i), own)
            elif own.next_s <= t_s:
                break
    return True


@jit
def next_ends(f, rows, limit_s):
    """Find the time of the next end that was not recorded, if it is not after `limit_s`, and record what ends then.

    Replicas are taken along as far as no touch can come before: up to the time before which nothing ends on any other,
    and up to `limit_s`, where something else happens. At equal times what is not known is looked at first. Returns the
    time, infinite if there is none, and whether logs had room.
    """
    while True:
        least, first_s, second_s = 0, np.inf, np.inf
        for i in range(len(f.replica)):
            t_s = f.replica[i].next_s
            if t_s < first_s or (t_s == first_s and f.replica[least].known and not f.replica[i].known):
                least, first_s, second_s = i, t_s, first_s
            elif t_s < second_s:
                second_s = t_s
        if first_s > limit_s or first_s == np.inf:
            return np.inf, True
        if f.replica[least].known:
            return first_s, collect(f, rows, first_s)
        if not _look(f, i64(least), -np.inf, min(limit_s, second_s)):
            return np.inf, False


def idle(state: State) -> Fleet:
    """Replicas that begin as `state`, made by `state.stacked`, and have nothing to do."""
    replicas, requests = state.request.shape
    replica = np.zeros(replicas, REPLICA)
    replica["next_s"], replica["swaps"] = np.inf, 1
    return Fleet(
        state=state,
        replica=readable(replica),
        loads=np.zeros(replicas, np.int64),
        owner=np.empty((replicas, requests), np.int64),
        swap_s=np.full((replicas, 8), -np.inf),
        swap_version=np.zeros((replicas, 8), np.int64),
        ended=np.empty(requests, np.int64),
        idle=readable(np.empty(64, IDLE)),
        used=np.zeros(2, np.int64),
        fresh=readable(fresh(1)),
    )


def with_more_requests(f: Fleet, requests: int) -> Fleet:
    """The same replicas with room for at least so many requests each."""
    more = max(requests, 2 * f.owner.shape[1]) - f.owner.shape[1]
    owner = np.concatenate([f.owner, np.empty((len(f.owner), more), np.int64)], axis=1)
    return f._replace(state=grow(f.state, owner.shape[1]), owner=owner)


def with_longer_logs(f: Fleet) -> Fleet:
    """The same replicas with twice the room for swaps, idle intervals and spans."""
    return f._replace(
        state=lengthen_spans(f.state),
        swap_s=np.concatenate([f.swap_s, f.swap_s], axis=1),
        swap_version=np.concatenate([f.swap_version, f.swap_version], axis=1),
        idle=readable(np.concatenate([f.idle, f.idle])),
    )

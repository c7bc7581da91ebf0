"""How the replicas of a pool go on between touches, and what ended on them, many in one compiled call.

There are two ways. `next_ends` takes replicas no further than nobody can touch them: for who must know every finish.
`foresee` runs them until nothing is left: a snapshot is taken first, an earlier touch comes back to it, and since
nothing touched the replica in between, running again repeats the same bits. With asynchronous scheduling an end at t is
known only when the step that starts at t is under way: who reacts to it touches the boundary after.
"""

import numpy as np

from rollsim.simulator.kernel import calls, loop, snapshot
from rollsim.simulator.kernel.calls import ANY
from rollsim.simulator.kernel.fleet import at
from rollsim.simulator.kernel.fleet_touches import settle
from rollsim.simulator.kernel.jit import i64, inline, jit
from rollsim.simulator.kernel.state import FINISHED


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
def _look(f, i, horizon_s):
    own = f.replica[i]
    reason, next_s, known = calls.look(at(f.state, i), horizon_s, i64(own.recorded))
    own.next_s, own.known = next_s, known
    return reason != loop.LOG_FULL


@jit
def collect(f, rows, t_s):
    """Bring replicas on which something may have ended to t_s and record it; returns whether logs had room."""
    for i in range(len(f.replica)):
        own = f.replica[i]
        while own.next_s <= t_s:
            if not own.known and not _look(f, i64(i), t_s):
                return False
            if own.known and own.next_s <= t_s:
                _record(f, rows, i, t_s)
                settle(at(f.state, i), own)
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
        if not _look(f, i64(least), min(limit_s, second_s)):
            return np.inf, False

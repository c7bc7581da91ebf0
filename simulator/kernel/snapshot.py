"""What a step can change in a replica, copied as sparingly as possible, to bring back a replica that ran ahead.

Requests before the *window* have ended, hold no cached block and are no parent of a live one: nothing changes them any
more, so only the window is copied.
"""

from rollsim.simulator.kernel.jit import i64, jit
from rollsim.simulator.kernel.state import FINISHED, NONE


@jit
def window(s, first, n):
    """First request, from `first` on, that a step may still change; n if there is none."""
    limit = n
    for r in range(first, n):
        q = s.request[r]
        if q.state < FINISHED:
            limit = min(limit, r)
            if q.parent != NONE:
                limit = min(limit, i64(q.parent))
    for r in range(first, limit):
        if s.request[r].run_first != NONE:
            return r
        for d in range(len(s.rank)):
            if s.slot[d, r].first_segment != NONE:
                return r
    return max(limit, first)


@jit
def copy(to, s, first, n):
    """Copy the state of a replica with n requests, none before `first` changeable, to one of the same size."""
    to.engine[0] = s.engine[0]
    e = s.engine[0]
    used = min(n, 2 * e.max_num_seqs)
    for d in range(len(s.rank)):
        to.rank[d] = s.rank[d]
        for k in range(used):
            to.slot[d, k] = s.slot[d, k]
        for k in range(max(used, first), n):
            to.slot[d, k] = s.slot[d, k]
        for k in range(s.residues.shape[1]):
            to.residues[d, k] = s.residues[d, k]
        for k in range(s.sums.shape[1]):
            for j in range(3):
                to.sums[d, k, j] = s.sums[d, k, j]
    for k in range(first, n):
        to.request[k] = s.request[k]
    for k in range(e.seg_top):
        to.segment[k] = s.segment[k]
    for k in range(e.hold_top):
        to.hold[k] = s.hold[k]
    for k in range(e.gauge_n):
        to.gauge[k] = s.gauge[k]

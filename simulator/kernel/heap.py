"""Binary heap of a rank's decoding requests by the clock of their next event, ties in admission order."""

from rollsim.simulator.kernel.jit import i64, inline
from rollsim.simulator.kernel.state import NONE


@inline
def _before(s, a, b):
    if s.request[a].key != s.request[b].key:
        return s.request[a].key < s.request[b].key
    return s.request[a].order < s.request[b].order


@inline
def _up(s, d, i):
    slot = s.slot[d]
    r = i64(slot[i].heap)
    while i > 0:
        parent = (i - 1) >> 1
        if not _before(s, r, i64(slot[parent].heap)):
            break
        slot[i].heap = slot[parent].heap
        s.request[slot[i].heap].heap_pos = i
        i = parent
    slot[i].heap = r
    s.request[r].heap_pos = i


@inline
def _down(s, d, i, n):
    slot = s.slot[d]
    r = i64(slot[i].heap)
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and _before(s, i64(slot[child + 1].heap), i64(slot[child].heap)):
            child += 1
        if not _before(s, i64(slot[child].heap), r):
            break
        slot[i].heap = slot[child].heap
        s.request[slot[i].heap].heap_pos = i
        i = child
    slot[i].heap = r
    s.request[r].heap_pos = i


@inline
def push(s, d, r):
    """Insert request r; its `key` and `order` are set."""
    rank = s.rank[d]
    s.slot[d, rank.n_decoding].heap = r
    rank.n_decoding += 1
    _up(s, d, rank.n_decoding - 1)


@inline
def remove(s, d, r):
    """Take request r out, wherever it stands."""
    rank = s.rank[d]
    i = i64(s.request[r].heap_pos)
    rank.n_decoding -= 1
    n = rank.n_decoding
    s.request[r].heap_pos = NONE
    if i == n:
        return
    s.slot[d, i].heap = s.slot[d, n].heap
    s.request[s.slot[d, i].heap].heap_pos = i
    moved = s.slot[d, n].heap
    _up(s, d, i)
    _down(s, d, i64(s.request[moved].heap_pos), n)


@inline
def update(s, d, r):
    """Restore the order after `key` of request r grew."""
    _down(s, d, i64(s.request[r].heap_pos), s.rank[d].n_decoding)

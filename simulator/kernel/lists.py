"""The two queues of a rank, as linked lists through the request records: running and waiting."""

from rollsim.simulator.kernel.jit import i64, inline
from rollsim.simulator.kernel.state import NONE


@inline
def run_append(s, d, r):
    """Put request r at the end of `running` (admission order)."""
    rank = s.rank[d]
    tail = rank.run_tail
    s.request[r].prev = tail
    s.request[r].next = NONE
    if tail == NONE:
        rank.run_head = r
    else:
        s.request[tail].next = r
    rank.run_tail = r
    rank.n_running += 1


@inline
def run_remove(s, d, r):
    """Take request r out of `running`; the order of the others stays."""
    rank = s.rank[d]
    before, after = i64(s.request[r].prev), i64(s.request[r].next)
    if before == NONE:
        rank.run_head = after
    else:
        s.request[before].next = after
    if after == NONE:
        rank.run_tail = before
    else:
        s.request[after].prev = before
    rank.n_running -= 1


@inline
def _wait_insert(s, d, r, before):
    """Put request r into `waiting` just behind `before` (NONE: at the front)."""
    rank = s.rank[d]
    after = rank.wait_head if before == NONE else s.request[before].next
    s.request[r].prev = before
    s.request[r].next = after
    if before == NONE:
        rank.wait_head = r
    else:
        s.request[before].next = r
    if after == NONE:
        rank.wait_tail = r
    else:
        s.request[after].prev = r
    rank.n_waiting += 1


@inline
def _first(s, a, b):
    """Whether request a stands before b under the priority policy."""
    if s.request[a].priority != s.request[b].priority:
        return s.request[a].priority < s.request[b].priority
    return s.request[a].arrival < s.request[b].arrival


@inline
def wait_back(s, d, r):
    """Queue a new request: at the back (FCFS) or by priority, then arrival."""
    before = s.rank[d].wait_tail
    if s.engine[0].priority:
        while before != NONE and _first(s, r, before):
            before = i64(s.request[before].prev)
    _wait_insert(s, d, r, before)


@inline
def wait_front(s, d, r):
    """Queue a preempted request: at the front (FCFS) or by priority, then arrival."""
    before = NONE
    if s.engine[0].priority:
        after = s.rank[d].wait_head
        while after != NONE and _first(s, after, r):
            before = after
            after = i64(s.request[after].next)
    _wait_insert(s, d, r, before)


@inline
def wait_remove(s, d, r):
    """Take request r out of `waiting`."""
    rank = s.rank[d]
    before, after = i64(s.request[r].prev), i64(s.request[r].next)
    if before == NONE:
        rank.wait_head = after
    else:
        s.request[before].next = after
    if after == NONE:
        rank.wait_tail = before
    else:
        s.request[after].prev = before
    rank.n_waiting -= 1


@inline
def worst_running(s, d):
    """The preemption victim: the last of `running`, or the worst one under the priority policy."""
    worst = s.rank[d].run_tail
    if s.engine[0].priority:
        r = s.rank[d].run_head
        while r != NONE:
            if _first(s, worst, r):
                worst = r
            r = i64(s.request[r].next)
    return worst

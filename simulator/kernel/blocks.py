"""The KV block pool of a rank with its prefix cache, block-exact but held as segments.

vLLM keeps every block by itself. Here a *segment* stands for consecutive full blocks of one content that are
held by the same requests, so that work grows with sharing and eviction events, not with tokens:

- content is a trie: block i of a request belongs to the request that first had these tokens (`owner_of`);
- each incarnation writes a run of segments; the lists of a content hold its copies in order of registration;
- free blocks are a count of keyless ones (vLLM puts these at the front) followed by the LRU list of free segments,
  each evicted from its tail, since a request releases its last block first.

Rules: `docs/vllm_scheduling_rules.md` sections 6 and 7 (vLLM 0.32.0, ``v1/core/block_pool.py``).
"""

from rollsim.simulator.kernel.jit import i64, inline, jit
from rollsim.simulator.kernel.state import DECODING, FP_BITS, NONE


@inline
def free_blocks(s, d):
    """Blocks that can be allocated on rank d, cached ones included."""
    return s.rank[d].free_keyless + s.rank[d].free_keyed


@inline
def blocks_for(s, tokens):
    """Blocks that hold `tokens` tokens."""
    return (tokens + s.engine[0].block_size - 1) // s.engine[0].block_size


@inline
def owner_of(s, r, i):
    """Request whose content block i of request r is: the oldest that has the same tokens up to its end."""
    bs = s.engine[0].block_size
    while s.request[r].parent != NONE and (i + 1) * bs <= s.request[r].shared:
        r = i64(s.request[r].parent)
    return r


@inline
def owned_until(s, r, i):
    """First block after i that belongs to another content than block i does."""
    bs = s.engine[0].block_size
    end = 1 << 30
    while s.request[r].parent != NONE and (i + 1) * bs <= s.request[r].shared:
        end = min(end, s.request[r].shared // bs)
        r = i64(s.request[r].parent)
    return end


@inline
def _new_segment(s, owner, lo, hi, version):
    e = s.engine[0]
    g = e.seg_free
    if g != NONE:
        e.seg_free = s.segment[g].lru_next
    else:
        g = e.seg_top
        e.seg_top += 1
    x = s.segment[g]
    x.owner, x.lo, x.hi, x.version = owner, lo, hi, version
    x.refs, x.writer = 0, NONE
    x.run_prev, x.run_next = NONE, NONE
    x.content_prev, x.content_next = NONE, NONE
    x.lru_prev, x.lru_next = NONE, NONE
    return g


@inline
def _lru_push(s, d, g):
    rank = s.rank[d]
    s.segment[g].lru_prev, s.segment[g].lru_next = rank.lru_tail, NONE
    if rank.lru_tail == NONE:
        rank.lru_head = g
    else:
        s.segment[rank.lru_tail].lru_next = g
    rank.lru_tail = g
    rank.free_keyed += s.segment[g].hi - s.segment[g].lo


@inline
def _lru_remove(s, d, g):
    rank = s.rank[d]
    before, after = i64(s.segment[g].lru_prev), i64(s.segment[g].lru_next)
    if before == NONE:
        rank.lru_head = after
    else:
        s.segment[before].lru_next = after
    if after == NONE:
        rank.lru_tail = before
    else:
        s.segment[after].lru_prev = before
    rank.free_keyed -= s.segment[g].hi - s.segment[g].lo


@inline
def _forget(s, d, g):
    """Unlink a segment whose blocks lost their keys; its slot is free."""
    x = s.segment[g]
    if x.content_prev == NONE:
        s.slot[d, x.owner].first_segment = x.content_next
    else:
        s.segment[x.content_prev].content_next = x.content_next
    if x.content_next == NONE:
        s.slot[d, x.owner].last_segment = x.content_prev
    else:
        s.segment[x.content_next].content_prev = x.content_prev
    if x.run_prev != NONE:
        s.segment[x.run_prev].run_next = x.run_next
    if x.run_next != NONE:
        s.segment[x.run_next].run_prev = x.run_prev
    x.lru_next = s.engine[0].seg_free
    s.engine[0].seg_free = g


@inline
def take(s, d, n):
    """Allocate n blocks of rank d: keyless ones first, then the least recently released, which lose their key."""
    rank = s.rank[d]
    m = min(n, rank.free_keyless)
    rank.free_keyless -= m
    n -= m
    while n > 0:
        g = rank.lru_head
        x = s.segment[g]
        m = min(n, x.hi - x.lo)
        if m == x.hi - x.lo:
            _lru_remove(s, d, g)
            _forget(s, d, g)
        else:
            x.hi -= m
            rank.free_keyed -= m
        n -= m


@inline
def _split(s, d, g, at):
    """Cut segment g into [lo, at) and [at, hi); the upper part stands right before it in the LRU list."""
    x = s.segment[g]
    h = _new_segment(s, i64(x.owner), at, i64(x.hi), i64(x.version))
    y = s.segment[h]
    x.hi = at
    y.refs, y.writer = x.refs, x.writer
    x.writer = NONE
    if y.writer != NONE:
        s.request[y.writer].run_last = h
    y.run_prev, y.run_next = g, x.run_next
    if x.run_next != NONE:
        s.segment[x.run_next].run_prev = h
    x.run_next = h
    y.content_prev, y.content_next = g, x.content_next
    if x.content_next != NONE:
        s.segment[x.content_next].content_prev = h
    else:
        s.slot[d, x.owner].last_segment = h
    x.content_next = h
    return h


@inline
def _split_free(s, d, g, at):
    """`_split` of a segment in the LRU list."""
    h = _split(s, d, g, at)
    before = i64(s.segment[g].lru_prev)
    s.segment[h].lru_prev, s.segment[h].lru_next = before, g
    s.segment[g].lru_prev = h
    if before == NONE:
        s.rank[d].lru_head = h
    else:
        s.segment[before].lru_next = h


@inline
def register(s, r, tokens):
    """Give keys to the blocks of request r that its first `tokens` tokens fill."""
    if not s.engine[0].caching:
        return
    q = s.request[r]
    d = i64(q.rank)
    want = tokens // s.engine[0].block_size
    if q.state != DECODING or q.odd:
        # A rate may carry a request beyond its blocks where its drafts were cut.
        want = min(want, q.owned)
    while q.registered < want:
        lo = i64(q.registered)
        owner = owner_of(s, r, lo)
        hi = min(want, owned_until(s, r, lo))
        version = s.engine[0].version
        if lo < q.old_blocks:
            version = i64(q.old_version)
            hi = min(hi, q.old_blocks)
        g = i64(q.run_last)
        if (
            g != NONE
            and s.segment[g].owner == owner
            and s.segment[g].hi == lo
            and s.segment[g].version == version
            and s.segment[g].refs == 1
            and s.slot[d, owner].last_segment == g
        ):
            s.segment[g].hi = hi
        else:
            h = _new_segment(s, owner, lo, hi, version)
            y = s.segment[h]
            y.refs, y.writer = 1, r
            y.run_prev = g
            if g == NONE:
                q.run_first = h
            else:
                s.segment[g].run_next = h
                s.segment[g].writer = NONE
            q.run_last = h
            tail = i64(s.slot[d, owner].last_segment)
            y.content_prev = tail
            if tail == NONE:
                s.slot[d, owner].first_segment = h
            else:
                s.segment[tail].content_next = h
            s.slot[d, owner].last_segment = h
        q.registered = hi


@inline
def known_tokens(s, r, clock):
    """Prompt and delivered output of decoding request r when the decode clock of its rank stood at `clock`.

    With asynchronous scheduling the last step's output is in flight, unless that step gave the request nothing.
    """
    q = s.request[r]
    e = s.engine[0]
    if e.asynchronous and q.idle_step != e.step - 1:
        if clock == q.clock_in:
            return i64(q.prompt + q.out)
        clock -= 1
    return ((q.start + q.rate * clock) >> FP_BITS) + 1


@inline
def register_served(s, r, clock):
    """Keys of decoding request r when it is served in the step that begins at `clock`: known tokens (6.3, 11.5)."""
    register(s, r, known_tokens(s, r, clock))


@inline
def register_decoded(s, r):
    """Keys of decoding request r after the step that brought the clock where it is."""
    q = s.request[r]
    clock = i64(s.rank[q.rank].clock)
    if s.engine[0].asynchronous:
        register(s, r, known_tokens(s, r, clock) - 1)
    elif clock > q.clock_in:
        register(s, r, known_tokens(s, r, clock - 1))


@inline
def register_ancestors(s, r, ticked):
    """Bring the keys of the content that request r shares up to date before it looks there or adds copies.

    `ticked` tells whether the clock has passed the current step.
    """
    a = i64(s.request[r].parent)
    while a != NONE:
        if s.request[a].rank == s.request[r].rank and s.request[a].state == DECODING:
            step = s.engine[0].step
            served = s.request[a].idle_step != step if ticked else s.request[a].sched_step == step
            if served:
                register_served(s, a, s.rank[s.request[a].rank].clock - ticked)
            else:
                register_decoded(s, a)
        a = i64(s.request[a].parent)


@inline
def lookup(s, d, r, total):
    """Longest run of cached full blocks at the start of request r's `total` tokens, at most (total - 1) // block_size.

    Fills `s.hit`; returns (parts, blocks hit, of these in the free list).
    """
    parts, i, free = 0, 0, 0
    if not s.engine[0].caching:
        return parts, i, free
    limit = (total - 1) // s.engine[0].block_size
    while i < limit:
        owner = owner_of(s, r, i)
        end = min(limit, owned_until(s, r, i))
        g = i64(s.slot[d, owner].first_segment)
        while g != NONE and not (s.segment[g].lo <= i < s.segment[g].hi):
            if s.segment[g].lo > i:
                end = min(end, s.segment[g].lo)
            g = i64(s.segment[g].content_next)
        if g == NONE:
            break
        end = min(end, s.segment[g].hi)
        s.hit[parts].segment, s.hit[parts].lo, s.hit[parts].hi = g, i, end
        parts += 1
        if s.segment[g].refs == 0:
            free += end - i
        i = end
    return parts, i, free


@inline
def hold_hits(s, d, r, parts):
    """Share the blocks that the last `lookup` found: they leave the free list and request r holds them."""
    q = s.request[r]
    e = s.engine[0]
    for p in range(parts):
        g, lo, hi = i64(s.hit[p].segment), i64(s.hit[p].lo), i64(s.hit[p].hi)
        while s.segment[g].hi <= lo:
            g = i64(s.segment[g].run_next)
        if s.segment[g].refs == 0:
            if s.segment[g].hi > hi:
                _split_free(s, d, g, hi)
            if s.segment[g].lo < lo:
                _split_free(s, d, g, lo)
                g = i64(s.segment[g].run_next)
            _lru_remove(s, d, g)
        else:
            if s.segment[g].hi > hi:
                _split(s, d, g, hi)
            if s.segment[g].lo < lo:
                g = _split(s, d, g, lo)
        s.segment[g].refs += 1
        h = e.hold_free
        if h != NONE:
            e.hold_free = s.hold[h].next
        else:
            h = e.hold_top
            e.hold_top += 1
        s.hold[h].segment, s.hold[h].end, s.hold[h].next = g, hi, q.hold_head
        q.hold_head = h


@inline
def _release_segments(s, d, last, first):
    """Drop a reference from the segments of a run, last to first; those without any go to the back of the LRU list."""
    g = last
    while g != NONE:
        before = s.segment[g].run_prev if g != first else NONE
        s.segment[g].refs -= 1
        if s.segment[g].refs == 0:
            _lru_push(s, d, g)
        g = before


@jit
def release(s, d, r):
    """Return the blocks of request r: keyless ones to the front of the free list, cached ones, tail first, behind."""
    q = s.request[r]
    e = s.engine[0]
    s.rank[d].free_keyless += q.owned - q.registered
    if q.run_last != NONE:
        s.segment[q.run_last].writer = NONE
        _release_segments(s, d, i64(q.run_last), i64(q.run_first))
    h = i64(q.hold_head)
    while h != NONE:
        first = i64(s.hold[h].segment)
        last = first
        while s.segment[last].hi < s.hold[h].end:
            last = i64(s.segment[last].run_next)
        _release_segments(s, d, last, first)
        after = i64(s.hold[h].next)
        s.hold[h].next = e.hold_free
        e.hold_free = h
        h = after
    q.hold_head, q.run_first, q.run_last = NONE, NONE, NONE
    q.owned, q.registered = 0, 0


@jit
def drop_cache(s, d):
    """Empty the prefix cache of a rank whose blocks are all free."""
    rank = s.rank[d]
    rank.free_keyless += rank.free_keyed
    while rank.lru_head != NONE:
        g = rank.lru_head
        _lru_remove(s, d, g)
        _forget(s, d, g)
    rank.free_keyed = 0

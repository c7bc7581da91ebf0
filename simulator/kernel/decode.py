"""The decoding members of a rank: progress as a line over the rank's decode clock, so that nobody is touched per token.

A member at clock c has x = (start + rate * c) / FP computed tokens. The rank keeps, per interval of the attention's
context function, the number of members and the sums of start and rate: the KV tokens read in a step are affine in the
clock between events. Members with one token per step and no spare blocks are *even*: their block needs follow from a
histogram of x mod block_size.
"""

import numpy as np

from rollsim.simulator.kernel import blocks, heap
from rollsim.simulator.kernel.blocks import blocks_for
from rollsim.simulator.kernel.jit import i64, inline
from rollsim.simulator.kernel.state import DECODING, FP, FP_BITS, NONE


@inline
def progress_fp(s, r):
    """Computed tokens of a decoding request, in 1/FP token."""
    q = s.request[r]
    return q.start + q.rate * s.rank[q.rank].clock


@inline
def computed_tokens(s, r):
    """Tokens of request r whose KV is (being) computed."""
    q = s.request[r]
    if q.state == DECODING:
        return progress_fp(s, r) >> FP_BITS
    return q.computed


@inline
def output_tokens(s, r):
    """Tokens generated and delivered; those of a batch in flight are not."""
    q = s.request[r]
    if q.state != DECODING:
        return i64(q.out)
    return blocks.known_tokens(s, r, i64(s.rank[q.rank].clock)) - q.prompt


@inline
def owned_blocks(s, r):
    """Blocks that request r owns, shared ones included."""
    q = s.request[r]
    if q.state == DECODING and not q.odd:
        return blocks_for(s, progress_fp(s, r) >> FP_BITS)
    return q.owned


@inline
def _set_key(s, r):
    """Clock of the next event of request r: its end, or a knot of the context function."""
    q = s.request[r]
    end_fp = (q.prompt + q.target - 1) << FP_BITS
    key = -((q.start - end_fp) // q.rate)
    if q.interval + 1 < len(s.context):
        knot = i64(np.ceil(s.context[q.interval + 1].knot * FP)) - FP
        key = min(key, -((q.start - knot) // q.rate))
    q.key = key


@inline
def _count(s, d, r, sign):
    q = s.request[r]
    sums = s.sums[d, q.interval]
    sums[0] += sign
    sums[1] += sign * q.start
    sums[2] += sign * q.rate
    rank = s.rank[d]
    rank.demand += sign * (1 + q.drafts)
    if q.odd:
        rank.n_odd += sign
    else:
        s.residues[d, (q.start >> FP_BITS) % s.engine[0].block_size] += sign
    if q.sharing:
        rank.n_sharing += sign


@inline
def interval_of(s, x):
    """Index of the context interval of a read of x tokens."""
    i = 0
    while i + 1 < len(s.context) and s.context[i + 1].knot <= x:
        i += 1
    return i


@inline
def enter(s, d, r, x_fp):
    """Request r decodes from now on, with x_fp computed tokens (1/FP) and its blocks in `owned`."""
    q = s.request[r]
    clock = s.rank[d].clock
    q.state = DECODING
    q.start = x_fp - q.rate * clock
    q.clock_in = clock
    x = x_fp >> FP_BITS
    q.interval = interval_of(s, (x_fp + FP) / FP)
    q.odd = q.rate != FP or q.drafts != 0 or (x << FP_BITS) != x_fp or q.owned != blocks_for(s, x)
    q.sharing = s.engine[0].caching and q.parent != NONE and q.registered < q.shared // s.engine[0].block_size
    _set_key(s, r)
    _count(s, d, r, 1)
    heap.push(s, d, r)


@inline
def leave(s, d, r):
    """Request r decodes no more; `computed` and `owned` become explicit."""
    q = s.request[r]
    heap.remove(s, d, r)
    _count(s, d, r, -1)
    q.owned = owned_blocks(s, r)
    q.computed = min(progress_fp(s, r) >> FP_BITS, q.prompt + q.target - 1)
    q.sharing = 0


@inline
def hold_back(s, d, r):
    """Request r got nothing in a step whose clock tick is about to come: its line moves one tick to the right."""
    q = s.request[r]
    _count(s, d, r, -1)
    q.start -= q.rate
    q.clock_in += 1
    q.key += 1
    _count(s, d, r, 1)
    heap.update(s, d, r)


@inline
def share_ends(s, d, r):
    """Request r has passed the content that it shares with its parent."""
    s.request[r].sharing = 0
    s.rank[d].n_sharing -= 1


@inline
def cross_knot(s, d, r):
    """Move request r to the next interval of the context function."""
    q = s.request[r]
    _count(s, d, r, -1)
    q.interval = interval_of(s, (progress_fp(s, r) + FP) / FP)
    _set_key(s, r)
    _count(s, d, r, 1)
    heap.update(s, d, r)


@inline
def is_last(s, d, r):
    """Whether the event that is due for request r is its end."""
    q = s.request[r]
    return q.start + q.rate * s.rank[d].clock >= (q.prompt + q.target - 1) << FP_BITS


@inline
def kv_read(s, d):
    """KV tokens read in the next decode step of rank d, and their growth per step."""
    clock = s.rank[d].clock
    u, du = 0.0, 0.0
    for i in range(len(s.context)):
        n, start, rate = s.sums[d, i, 0], s.sums[d, i, 1], s.sums[d, i, 2]
        u += s.context[i].slope * (n + (start + rate * clock) / FP) + s.context[i].offset * n
        du += s.context[i].slope * rate / FP
    return u, du


@inline
def blocks_in(s, d, k):
    """Blocks that k pure decode steps of rank d take from the pool.

    A step takes one for each even member whose last block is full; block_size steps take one for every even member.
    """
    bs = i64(s.engine[0].block_size)
    clock = i64(s.rank[d].clock)
    residues = s.residues[d]
    cycles = k // bs
    need = cycles * (s.rank[d].n_decoding - s.rank[d].n_odd)
    i = (-clock) % bs
    for _ in range(k - cycles * bs):
        need += residues[i]
        i = i - 1 if i > 0 else bs - 1
    if s.rank[d].n_odd > 0:
        for i in range(s.rank[d].n_decoding):
            q = s.request[s.slot[d, i].heap]
            if q.odd:
                x = q.start + q.rate * (clock + k - 1)
                need += max(0, blocks_for(s, (x >> FP_BITS) + 1 + q.drafts) - q.owned)
    return need


@inline
def steps_in(s, d, blocks):
    """Pure decode steps of rank d, all of its members even, for which `blocks` blocks suffice."""
    bs = i64(s.engine[0].block_size)
    residues = s.residues[d]
    cycles = blocks // s.rank[d].n_decoding
    left = blocks - cycles * s.rank[d].n_decoding
    i = (-i64(s.rank[d].clock)) % bs
    k = cycles * bs
    while residues[i] <= left:
        left -= residues[i]
        k += 1
        i = i - 1 if i > 0 else bs - 1
    return k

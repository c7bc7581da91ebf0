"""One step of a rank's scheduler, request by request: serve `running`, then admit from `waiting`.

Rules: `docs/vllm_scheduling_rules.md` sections 2-5, 8, 10 and 11 (vLLM 0.32.0, ``v1/core/sched/scheduler.py``).
"""

from rollsim.simulator.kernel import blocks, decode, ends, lists, steady
from rollsim.simulator.kernel.jit import i64, inline, jit
from rollsim.simulator.kernel.state import (
    DECODING,
    ENDING,
    FP,
    FP_BITS,
    NO_ROOM,
    NO_TOKENS,
    NONE,
    RUNNING,
)


@inline
def _capped(s, d, n):
    """Tokens one request may get at most in this step of the n that it needs (rule 2.2)."""
    e = s.engine[0]
    members = s.rank[d].n_running + s.rank[d].n_waiting
    if members <= 1:
        return n
    cap = e.threshold
    if e.adaptive:
        cap = max(cap, e.budget // members)
    return min(n, cap) if cap > 0 else n


@inline
def _give(s, d, r, n, drafts, computed):
    """Note that request r gets n tokens in this step, on top of `computed`."""
    e = s.engine[0]
    q = s.request[r]
    rank = s.rank[d]
    row = s.slot[d, rank.n_sched]
    row.scheduled, row.tokens, row.drafts, row.computed = r, n, drafts, computed
    row.had_output = decode.output_tokens(s, r) > 0
    rank.n_sched += 1
    q.sched_step = e.step
    q.sched_n = n
    if q.state != DECODING and q.preemptions > 0:
        q.recomputed += n - drafts


@inline
def _charge(s, d, n, x, need, recompute, sign):
    """Add one scheduled request to the step's cost terms: a decode reads x tokens, a prefill attends to its context."""
    rank = s.rank[d]
    rank.sched_tokens += sign * n
    if need == 1:
        i = decode.interval_of(s, x)
        rank.decode_b += sign
        rank.decode_u += sign * (s.context[i].slope * x + s.context[i].offset)
        return
    context = x - 1.0
    attention = sign * n * (context + n / 2)
    rank.attn += attention
    rank.sched_prefill += sign * n
    if recompute:
        rank.sched_recompute += sign * n
        rank.attn_recompute += attention


@inline
def _need(s, r):
    """Tokens that a running request asks for before drafts."""
    q = s.request[r]
    return 1 if q.state == DECODING else q.prompt + q.out - q.computed


@inline
def _take_back(s, d, r):
    """Undo the scheduling of a victim that was served before in this step (rule 5.4); returns its tokens."""
    q = s.request[r]
    rank = s.rank[d]
    at = 0
    while s.slot[d, at].scheduled != r:
        at += 1
    for i in range(at, rank.n_sched - 1):
        row, after = s.slot[d, i], s.slot[d, i + 1]
        row.scheduled, row.tokens, row.drafts = after.scheduled, after.tokens, after.drafts
        row.computed, row.had_output = after.computed, after.had_output
    rank.n_sched -= 1
    if q.state != DECODING and q.preemptions > 0:
        q.recomputed -= q.sched_n
    if q.state == DECODING:
        x = (decode.progress_fp(s, r) + FP) / FP
        _charge(s, d, i64(q.sched_n), x, 1, False, -1)
    else:
        _charge(s, d, i64(q.sched_n), q.computed + 1.0, _need(s, r), q.preemptions > 0, -1)
    return i64(q.sched_n)


@jit
def serve(s, d):
    """Walk `running` from the front with the step's token budget; returns the budget that is left.

    vLLM walks by index. A victim that stood before the walk without being scheduled (its last token is in flight)
    shifts the list under the index, so that the request behind the current one is passed over.
    """
    e = s.engine[0]
    rank = s.rank[d]
    budget = e.budget
    r = rank.run_head
    while r != NONE and budget > 0:
        q = s.request[r]
        if q.state == ENDING:
            r = i64(q.next)
            continue
        decoding = q.state == DECODING
        if decoding:
            x_fp = decode.progress_fp(s, r)
            computed = x_fp >> FP_BITS
            need = 1
            n = min(_capped(s, d, 1 + q.drafts), budget, e.max_model_len - computed - 1)
        else:
            computed = i64(q.computed)
            x_fp = computed << FP_BITS
            need = q.prompt + q.out - computed
            n = min(_capped(s, d, need), budget, e.max_model_len - computed - 1)
        if n <= 0:
            r = i64(q.next)
            continue
        owned = decode.owned_blocks(s, r)
        missing = blocks.blocks_for(s, computed + n) - owned
        skipped = 0
        while missing > blocks.free_blocks(s, d):
            victim = lists.worst_running(s, d)
            if s.request[victim].sched_step == e.step:
                budget += _take_back(s, d, victim)
            elif s.request[victim].order < q.order:
                skipped += 1
            ends.preempt(s, d, victim)
            if victim == r:
                return budget
        if missing > 0:
            blocks.take(s, d, missing)
            if not decoding or q.odd:
                q.owned = owned + missing
        if not decoding:
            blocks.register_ancestors(s, r, 0)
            blocks.register(s, r, computed + n)
        elif rank.n_sharing > 0 or (e.asynchronous and q.idle_step == e.step - 1):
            blocks.register_served(s, r, rank.clock)
        _give(s, d, r, n, n - 1 if decoding else 0, computed)
        _charge(s, d, n, (x_fp + FP) / FP, need, q.preemptions > 0, 1)
        budget -= n
        r = i64(q.next)
        while skipped > 0 and r != NONE:
            r = i64(s.request[r].next)
            skipped -= 1
    return budget


@inline
def tick(s, d):
    """Advance the decode clock; members that got nothing in this step stay where they are."""
    e = s.engine[0]
    rank = s.rank[d]
    r = rank.run_head
    while r != NONE:
        q = s.request[r]
        if q.state == DECODING and q.sched_step != e.step:
            decode.hold_back(s, d, r)
            q.idle_step = e.step
        r = i64(q.next)
    rank.clock += 1


@inline
def _versions(s, r, parts, carried):
    """Version of the oldest KV that request r starts with; blocks of its `carried` tokens, and their version."""
    q = s.request[r]
    oldest = i64(s.engine[0].version)
    for p in range(parts):
        oldest = min(oldest, s.segment[s.hit[p].segment].version)
    if carried == 0:
        return oldest, 0, oldest
    return min(oldest, q.kv_version), blocks.blocks_for(s, carried), i64(q.kv_version)


@jit
def _admit_one(s, d, r, budget):
    """Admit request r if it may start now; returns the tokens given to it, or 0 with the reason in `blocked`."""
    e = s.engine[0]
    rank = s.rank[d]
    q = s.request[r]
    total = q.prompt + q.out
    blocks.register_ancestors(s, r, 1)
    parts, hit_blocks, hit_free = blocks.lookup(s, d, r, total)
    hit = hit_blocks * e.block_size
    computed = max(hit, min(q.kv_tokens, total - 1))
    need = total - computed
    n = _capped(s, d, need)
    rank.blocked = NO_TOKENS
    if not e.chunked and n > budget:
        return 0
    n = min(n, budget)
    drafts = 0
    # Placeholder drafts go when the cached blocks they rest on do, and then the request may fit: it is never `blocked`.
    if e.spec_tokens > 0 and need == 1 and rank.sched_prefill == 0 and (rank.n_served > 0 or computed > 0):
        drafts = e.spec_tokens
        n = 1 + drafts
        if n > budget:
            rank.blocked = 0
            return 0
    fit = max(blocks.blocks_for(s, min(total, e.max_model_len)), blocks.blocks_for(s, computed + n))
    watermark = e.watermark if rank.n_running > 0 else 0
    if fit - hit_blocks + hit_free > blocks.free_blocks(s, d) - watermark:
        rank.blocked = NO_ROOM if drafts == 0 else 0
        return 0
    rank.blocked = 0
    lists.wait_remove(s, d, r)
    lists.run_append(s, d, r)
    blocks.hold_hits(s, d, r, parts)
    q.state = RUNNING
    q.order = e.admissions
    e.admissions += 1
    q.registered = hit_blocks
    q.computed = computed
    q.owned = blocks.blocks_for(s, computed + n)
    q.kv_version, q.old_blocks, q.old_version = _versions(s, r, parts, computed if computed > hit else 0)
    q.kv_tokens = 0
    blocks.take(s, d, q.owned - hit_blocks)
    blocks.register(s, r, min(computed + n, total))
    if q.admit_s < 0:
        q.cached, q.admit_s = hit, e.now_s
    q.span_t0_s, q.span_token_s, q.span_cached, q.span_version = e.now_s, -1.0, computed, e.version
    _give(s, d, r, n, drafts, computed)
    _charge(s, d, n, computed + 1.0, need, q.preemptions > 0, 1)
    return n


@inline
def _hits_grow(s, d, r):
    """Whether a running request is about to fill blocks that waiting request r will find in the cache."""
    limit = 1 << 30
    while s.engine[0].caching and s.request[r].parent != NONE:
        limit = min(limit, s.request[r].shared // s.engine[0].block_size)
        r = i64(s.request[r].parent)
        q = s.request[r]
        if RUNNING <= q.state <= DECODING and q.rank == d and q.registered < limit:
            return True
    return False


@inline
def _has_room(s, d, r):
    """Whether waiting request r may find blocks in the next step, nothing having ended; its output is in by then."""
    e = s.engine[0]
    total = s.request[r].prompt + s.request[r].out + s.request[r].inflight
    _, hit_blocks, hit_free = blocks.lookup(s, d, r, total)
    watermark = e.watermark if s.rank[d].n_running > 0 else 0
    fit = blocks.blocks_for(s, min(total, e.max_model_len)) - hit_blocks + hit_free
    return fit <= blocks.free_blocks(s, d) - watermark or e.spec_tokens > 0 or _hits_grow(s, d, r)


@inline
def admit(s, d, budget):
    """Admit from the head of `waiting` until one does not fit; nothing behind it is tried (rule 3.2).

    Sets `blocked` when nothing can be admitted before something ends on this rank: want of tokens lasts only if this
    step was pure decode.
    """
    e = s.engine[0]
    rank = s.rank[d]
    rank.blocked = 0
    if rank.n_preempted > 0:
        if rank.steady and not _has_room(s, d, i64(rank.wait_head)):
            rank.blocked = NO_ROOM
        return
    pure = rank.sched_prefill == 0
    r = rank.wait_head
    while r != NONE and budget > 0 and rank.n_running < e.max_num_seqs:
        after = i64(s.request[r].next)
        if s.request[r].inflight == 0:
            n = _admit_one(s, d, r, budget)
            if n == 0:
                if _hits_grow(s, d, r) or (rank.blocked == NO_TOKENS and not pure):
                    rank.blocked = 0
                return
            budget -= n
            pure = False
        r = after
    if r != NONE and rank.n_running >= e.max_num_seqs:
        rank.blocked = NO_ROOM
    elif r != NONE and pure:
        rank.blocked = NO_TOKENS


@inline
def note_peak(s, d):
    """Keep what the rank holds after scheduling, before the step's ends free anything."""
    rank = s.rank[d]
    e = s.engine[0]
    rank.blocks_peak = e.num_blocks - blocks.free_blocks(s, d)
    rank.running_peak, rank.waiting_peak = rank.n_running, rank.n_waiting
    e.max_batch = max(e.max_batch, rank.n_running)
    e.max_blocks = max(e.max_blocks, rank.blocks_peak)


@inline
def trace(s, d):
    """Write the members of a step that was not walked into `scheduled`, as a walk would; the clock has ticked."""
    rank = s.rank[d]
    rank.clock -= 1
    rank.n_sched = 0
    r = i64(rank.run_head)
    while r != NONE:
        q = s.request[r]
        if q.state == DECODING:
            _give(s, d, r, 1 + q.drafts, q.drafts, decode.computed_tokens(s, r))
        r = i64(q.next)
    rank.clock += 1


@jit
def schedule(s, d):
    """Scheduling phase of one step of rank d."""
    rank = s.rank[d]
    rank.n_sched, rank.n_preempted = 0, 0
    rank.sched_tokens, rank.sched_prefill, rank.sched_recompute = 0, 0, 0
    rank.decode_b, rank.decode_u, rank.attn, rank.attn_recompute = 0, 0.0, 0.0, 0.0
    rank.steady = steady.can_serve(s, d)
    if rank.steady:
        budget = steady.serve(s, d)
        if s.engine[0].traced:
            trace(s, d)
    else:
        budget = serve(s, d)
        rank.n_served = rank.n_sched
        tick(s, d)
    admit(s, d, budget)
    note_peak(s, d)

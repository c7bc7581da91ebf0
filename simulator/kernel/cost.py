"""Time of a step, and of k pure decode steps in closed form.

t = host ⊕ (dense[tokens] + max over ranks (kv_read[B]·U + prefill_attn·Σ chunk·(context + chunk/2))), where ⊕ is + with
synchronous and max with asynchronous scheduling. In pure decode every rank's term is a line over the step number, so
the time of k steps is the sum under the upper envelope of at most D + 1 lines.
"""

from rollsim.simulator.kernel import decode
from rollsim.simulator.kernel.jit import i64, inline


@inline
def _attention(s, d):
    e = s.engine[0]
    rank = s.rank[d]
    read = s.kv_read_s[rank.decode_b] * rank.decode_u if rank.decode_b > 0 else 0.0
    return read, e.prefill_attn_s * rank.attn, e.prefill_attn_s * rank.attn_recompute


@inline
def step_s(s):
    """Time of the step that all ranks have just scheduled [s]; splits it over the engine's time accounts."""
    e = s.engine[0]
    tokens, prefill, recompute = 0, 0, 0
    worst, read_s, attn_s, redo_s = -1.0, 0.0, 0.0, 0.0
    for d in range(len(s.rank)):
        rank = s.rank[d]
        tokens += rank.sched_tokens
        prefill += rank.sched_prefill
        recompute += rank.sched_recompute
        read, attn, redo = _attention(s, d)
        if read + attn > worst:
            worst, read_s, attn_s, redo_s = read + attn, read, attn, redo
    dense = s.dense[tokens].mixed_s if prefill > 0 else s.dense[tokens].decode_s
    gpu = dense + worst
    total = max(e.host_s, gpu) if e.overlap else e.host_s + gpu
    e.step_s, e.step_decode_s, e.step_prefill_s, e.step_recompute_s = total, 0.0, 0.0, 0.0
    if tokens > 0:
        e.step_decode_s = read_s + dense * ((tokens - prefill) / tokens)
        e.step_prefill_s = attn_s - redo_s + dense * ((prefill - recompute) / tokens)
        e.step_recompute_s = redo_s + dense * (recompute / tokens)
        e.decode_time_s += e.step_decode_s
        e.prefill_time_s += e.step_prefill_s
        e.recompute_time_s += e.step_recompute_s
    e.host_time_s += total - gpu
    e.max_step_tokens = max(e.max_step_tokens, tokens)
    return total


@inline
def set_lines(s):
    """Write pure decode's lines (next step [s], growth per step [s]) into `s.lines`; returns their number."""
    e = s.engine[0]
    demand = 0
    for d in range(len(s.rank)):
        demand += s.rank[d].demand
    e.max_step_tokens = max(e.max_step_tokens, demand)
    base = s.dense[demand].decode_s
    if not e.overlap:
        base += e.host_s
    for d in range(len(s.rank)):
        u, du = decode.kv_read(s, d)
        n = s.rank[d].n_decoding
        per_token = s.kv_read_s[n] if n > 0 else 0.0
        s.lines[d, 0] = base + per_token * u
        s.lines[d, 1] = per_token * du
    n = len(s.rank)
    if e.overlap:
        s.lines[n, 0], s.lines[n, 1] = e.host_s, 0.0
        n += 1
    return n


@inline
def envelope_s(s, first, n, k):
    """Sum over steps 0..k-1 of the largest of the lines first..n-1 [s]."""
    lines = s.lines
    total, j = 0.0, 0
    while j < k:
        top = first
        for i in range(first + 1, n):
            value, best = lines[i, 0] + lines[i, 1] * j, lines[top, 0] + lines[top, 1] * j
            if value > best or (value == best and lines[i, 1] > lines[top, 1]):
                top = i
        end = k
        for i in range(first, n):
            if lines[i, 1] > lines[top, 1]:
                cross = (lines[top, 0] - lines[i, 0]) / (lines[i, 1] - lines[top, 1])
                if cross < end:
                    end = max(i64(cross) + 1, j + 1)
        m = end - j
        total += m * lines[top, 0] + lines[top, 1] * (0.5 * m * (j + end - 1))
        j = end
    return total


@inline
def highest(s, n, j):
    """Largest of the first n lines at step j [s]."""
    top = s.lines[0, 0] + s.lines[0, 1] * j
    for i in range(1, n):
        top = max(top, s.lines[i, 0] + s.lines[i, 1] * j)
    return top


@inline
def steps_until(s, n, k, duration_s):
    """Smallest number of steps, at most k, that takes at least `duration_s`."""
    low, high = 1, k
    while low < high:
        middle = (low + high) // 2
        if envelope_s(s, 0, n, middle) >= duration_s:
            high = middle
        else:
            low = middle + 1
    return low

"""More slots or more KV never hurts a static FCFS batch with one prompt length: where that is true.

All requests are queued at t = 0 with one prompt length, no prefix is shared. No exception to the conditions below
was found in 10,000 to 40,000 random pairs each; `test_theory_anomalies.py` has the smallest batch for which each of
them is needed.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from rollsim.simulator.costs import StepCost
from tests.simulator.theory import ample, batch, constant_step, finishes_s, preemptions

OUTPUTS = st.lists(st.integers(1, 12), min_size=1, max_size=12)
PROMPTS = st.integers(1, 6)
SLOTS = st.integers(1, 8)
MORE = st.integers(1, 4)


@settings(max_examples=300)
@given(OUTPUTS, PROMPTS, SLOTS, MORE, st.integers(0, 40))
def test_more_slots_end_nobody_later_at_constant_step_time(outputs, prompt, slots, more, spare_tokens):
    """Holds if (a) no KV is wanting, (b) every step lasts equally long; at any token budget that serves all decodes.

    With a budget for all prompts it is list scheduling of independent jobs: by induction over the queue, the k-th
    smallest time at which a slot falls free is no later with more slots, so neither is any start (Graham's anomalies
    of 1966 need precedence between jobs). With less, a prompt takes several steps, but never delays those before it:
    `running` is served in the order of the queue.
    """
    budget = slots + more + spare_tokens
    few, many = (ample(max_num_seqs=m, max_num_batched_tokens=budget) for m in (slots, slots + more))
    before, after = (batch(limits, constant_step(limits), outputs, prompt_tokens=prompt) for limits in (few, many))
    assert (finishes_s(after) <= finishes_s(before)).all()


@settings(max_examples=200)
@given(OUTPUTS, PROMPTS, SLOTS, MORE)
def test_more_slots_end_nobody_later_under_asynchronous_scheduling(outputs, prompt, slots, more):
    """The same with a slot held one call longer, if an empty call costs as much as a full one (here: the host)."""
    few, many = (ample(max_num_seqs=m, async_scheduling=True) for m in (slots, slots + more))
    cost = StepCost.affine(64, 64, host_s=1.0, overlap=True, base_s=0.0)
    before, after = (batch(limits, cost, outputs, prompt_tokens=prompt) for limits in (few, many))
    assert (finishes_s(after) <= finishes_s(before)).all()


@settings(max_examples=200)
@given(OUTPUTS, PROMPTS, SLOTS, MORE, st.tuples(*[st.integers(0, 8)] * 4))
def test_more_slots_lengthen_no_makespan_at_affine_cost(outputs, prompt, slots, more, eighths):
    """Holds for the *makespan* if KV and budget are ample and each cost is a constant times a count.

    Tokens, KV reads and prefill pairs of a request do not depend on its company: sums over the run are fixed, only the
    number of steps changes, and that falls by the constant-step theorem. Single requests may end later: they share
    their steps with more others.
    """
    base, token, kv_read, pair = (n / 8 for n in eighths)
    costs = {"base_s": base, "token_s": token, "kv_read_s": kv_read, "prefill_attn_s": pair}
    few, many = (ample(max_num_seqs=m, max_num_batched_tokens=128) for m in (slots, slots + more))
    before, after = (batch(m, StepCost.affine(128, 64, **costs), outputs, prompt_tokens=prompt) for m in (few, many))
    assert finishes_s(after).max() <= finishes_s(before).max() + 1e-9


@st.composite
def rigid_batches(draw):
    """Batches in which no response outgrows the blocks that its prompt opens."""
    block_size = draw(st.sampled_from([4, 8, 16]))
    prompt = draw(st.integers(1, 2 * block_size))
    room = -prompt % block_size + 1
    outputs = draw(st.lists(st.integers(1, room), min_size=1, max_size=12))
    return block_size, prompt, outputs


@settings(max_examples=300)
@given(rigid_batches(), SLOTS, st.integers(0, 2), st.integers(0, 8), MORE)
def test_more_kv_or_slots_end_nobody_later_where_no_response_grows(rigid, slots, more_slots, spare, more_blocks):
    """Holds if every request keeps the blocks that it is admitted with, and every step lasts equally long.

    Then a request is a rigid job on q blocks and one slot. By induction over the queue: at the time at which a request
    started with less, all before it have started with more, no later, so those still there are a subset and it fits.
    """
    block_size, prompt, outputs = rigid
    blocks = -(-prompt // block_size) + spare
    few = ample(
        max_num_seqs=slots, max_num_batched_tokens=512, block_size=block_size, num_blocks=blocks, max_model_len=64
    )
    many = ample(
        max_num_seqs=slots + more_slots,
        max_num_batched_tokens=512,
        block_size=block_size,
        num_blocks=blocks + more_blocks,
        max_model_len=64,
    )
    before, after = (batch(limits, constant_step(limits), outputs, prompt_tokens=prompt) for limits in (few, many))
    assert preemptions(before) == preemptions(after) == 0
    assert (finishes_s(after) <= finishes_s(before)).all()


@settings(max_examples=200)
@given(OUTPUTS, PROMPTS, SLOTS, st.integers(0, 30))
def test_kv_for_all_beats_any_less_at_constant_step_time(outputs, prompt, slots, spare):
    """From scarce to *ample* KV is always an improvement: then each request is limited by slots alone.

    A slot is taken no later than when blocks are asked for as well, and no token is computed twice. Only steps on the
    way there, from scarce to less scarce, can hurt.
    """
    scarce = ample(max_num_seqs=slots, block_size=1, num_blocks=prompt + max(outputs) - 1 + spare, max_model_len=32)
    full = ample(max_num_seqs=slots)
    before, after = (batch(limits, constant_step(limits), outputs, prompt_tokens=prompt) for limits in (scarce, full))
    assert (finishes_s(after) <= finishes_s(before)).all()

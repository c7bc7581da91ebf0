"""Where more slots or more KV hurts a static FCFS batch: the smallest batch found of each kind, and why.

Each batch has one prompt length and is queued at t = 0. Finish times are exact. The kinds were found by random search
over some 10^6 pairs and shrunk. They are properties of the engine's rules (and of vLLM's), not faults of the kernel:
`tests/reference` gives the same times. `test_theory_monotonicity.py` has the conditions under which none can occur.
"""

import numpy as np
import pytest

from rollsim.simulator.costs import StepCost
from tests.reference.engine import Engine
from tests.simulator.theory import ample, batch, constant_step, finishes_s, preemptions


def outcome(outputs, prompt, cost=constant_step, **limits):
    """Finish times [s] and preemptions on the compiled replica, which the reference engine must confirm."""
    engine_limits = ample(**limits)
    replica = batch(engine_limits, cost(engine_limits), outputs, prompt_tokens=prompt)
    reference = Engine(engine_limits, cost(engine_limits))
    for i, n in enumerate(outputs):
        reference.dispatch(0.0, i, prompt, n)
    reference.run()
    ends = finishes_s(replica).tolist()
    assert ends == [result.finish_s for result in reference.results().values()]
    return ends, preemptions(replica)


def affine(**costs):
    return lambda limits: StepCost.affine(limits.max_num_batched_tokens, limits.max_num_seqs, **costs)


def tables(decode_s, kv_read_s):
    """Cost of a step from functions of its tokens and of its batch."""

    def cost(limits):
        dense_s = np.array([0.0, *(decode_s(n) for n in range(1, limits.max_num_batched_tokens + 1))])
        return StepCost(
            host_s=0.0,
            overlap=False,
            decode_s=dense_s,
            mixed_s=dense_s,
            kv_read_s=np.array([kv_read_s(n) for n in range(limits.max_num_seqs + 1)]),
            prefill_attn_s=0.0,
            context_knots=np.zeros(1),
            context_slopes=np.ones(1),
            context_offsets=np.zeros(1),
        )

    return cost


# --- step time that is not a constant times counts ---


@pytest.mark.parametrize("limit", ["max_num_seqs", "num_blocks"])
def test_padding(limit):
    """A third running request pads every step to the CUDA graph of 4: three of one token, 2 + 1 beat 4.

    Two: a graph of 2 (2 s), then of 1 (1 s). Three at once: a graph of 4 (4 s). Best where the batch is a graph size.
    """
    padded = tables(lambda n: float(2 ** int(np.ceil(np.log2(n)))), lambda n: 0.0)
    assert outcome([1, 1, 1], 1, padded, block_size=1, **{limit: 2}) == ([2, 2, 3], 0)
    assert outcome([1, 1, 1], 1, padded, block_size=1, **{limit: 3}) == ([4, 4, 4], 0)


def test_kv_reads_that_slow_down_with_the_batch():
    """If a KV token takes longer to read in a larger batch (here B / 4 s), company costs more than steps save.

    Reads: two slots 1 + B U / 4 = 2, then 2.5 with contexts 2 + 1 -> 1 + 2 * 3 / 4; three slots 3.25, then 1.5.
    """
    slowing = tables(lambda n: 1.0, lambda n: n / 4)
    assert outcome([1, 2, 1], 1, slowing, max_num_seqs=2) == ([2, 4.5, 4.5], 0)
    assert outcome([1, 2, 1], 1, slowing, max_num_seqs=3) == ([3.25, 4.75, 3.25], 0)


def test_prefill_makes_the_decodes_beside_it_dear():
    """Mixed steps cost per token (1 s each), pure decode steps do not: more slots spread prefills over more decodes.

    Two slots: prefill of two (5 s), decode (1 s), prefill of two (5 s) = 11 s. Three: prefill of three (7 s), then the
    fourth's prefill beside two decodes (1 + 4 s) = 12 s.
    """
    mixed = affine(base_s=1.0, token_s=0.0, mixed_token_s=1.0)
    assert outcome([2, 2, 1, 1], 2, mixed, max_num_seqs=2) == ([6, 6, 11, 11], 0)
    assert outcome([2, 2, 1, 1], 2, mixed, max_num_seqs=3) == ([12, 12, 7, 12], 0)


def test_a_chunk_boundary():
    """A second slot lets the budget of 3 cut the second prompt of 2 tokens; its rest of one token counts as decode.

    A prefilled token attends in pairs (1/8 s each), a step that needs exactly one token reads its context like any
    decode (1/4 s a token). Uncut 2 x (1 + 1 + 1/4); cut (1 + 1.5 + 0.3125) + (1 + 0.5 + 0.5).
    """
    cost = affine(base_s=1.0, token_s=0.5, kv_read_s=0.25, prefill_attn_s=0.125)
    assert outcome([1, 1], 2, cost, max_num_seqs=1, max_num_batched_tokens=3) == ([2.25, 4.5], 0)
    assert outcome([1, 1], 2, cost, max_num_seqs=2, max_num_batched_tokens=3) == ([2.8125, 4.8125], 0)


def test_single_requests_pay_for_company():
    """Affine cost: the makespan gains from a second slot (base time once, not twice), the first request loses."""
    cost = affine(base_s=1.0, token_s=0.5)
    assert outcome([1, 1], 1, cost, max_num_seqs=1) == ([1.5, 3], 0)
    assert outcome([1, 1], 1, cost, max_num_seqs=2) == ([2, 2], 0)


def test_an_empty_asynchronous_call_is_cheap():
    """Asynchronous scheduling holds a slot one call longer, but a call that schedules nothing costs only the host.

    Two slots: both one-token requests end together, the call that sees it is empty and free (host 0), the other two
    start at 1 s. Three slots: the third request decodes in that call, which lasts 1 s, and the fourth waits for it.
    """
    assert outcome([1, 1, 2, 2], 1, max_num_seqs=2, async_scheduling=True) == ([1, 1, 3, 3], 0)
    assert outcome([1, 1, 2, 2], 1, max_num_seqs=3, async_scheduling=True) == ([1, 1, 2, 4], 0)


# --- constant step time, too little KV, nobody preempted: who started earlier is larger when the next one asks ---


def test_a_slot_more_ages_the_batch():
    """Blocks of one token, four of them. With a fourth slot request 3 starts a step earlier and owns 2 blocks, not 1,
    when request 4 asks for one: it waits. With three slots both are admitted together and grow together.
    """
    pool = {"block_size": 1, "num_blocks": 4}
    assert outcome([1, 1, 2, 2, 2], 1, max_num_seqs=3, **pool) == ([1, 1, 2, 3, 3], 0)
    assert outcome([1, 1, 2, 2, 2], 1, max_num_seqs=4, **pool) == ([1, 1, 2, 2, 4], 0)


def test_a_block_more_ages_the_batch():
    """Blocks of two tokens, prompts of 2 blocks, a third block with the second token.

    10 blocks: request 4 starts in step 1, so 5 and 6 start in step 2 and own 3 blocks each in step 3; with the 3 of
    request 2, one block is free and request 7 needs two. 9 blocks: 4 starts in step 2, so 5, 6 and 7 start together in
    step 3 on 6 blocks beside 3, all 9. Admission looks at the blocks of now, not at those to come (rule 3.4).
    """
    outputs, limits = [1, 1, 3, 2, 1, 2, 2, 2], {"max_num_seqs": 5, "block_size": 2}
    assert outcome(outputs, 4, num_blocks=9, **limits) == ([1, 1, 3, 2, 2, 4, 4, 4], 0)
    assert outcome(outputs, 4, num_blocks=10, **limits) == ([1, 1, 3, 2, 1, 3, 3, 5], 0)


# --- constant step time, preemption ---


def test_a_slot_more_preempts():
    """The fourth request gets a slot, a token, and is preempted in step 2, for its neighbors grow into the pool.

    It comes back ahead of the fifth and asks for 3 tokens, 2 blocks, at once; the fifth no longer fits beside it. With
    three slots the two start together in step 3, with a block each.
    """
    pool = {"block_size": 2, "num_blocks": 4}
    assert outcome([1, 2, 3, 2, 2], 2, max_num_seqs=3, **pool) == ([1, 2, 3, 4, 4], 0)
    assert outcome([1, 2, 3, 2, 2], 2, max_num_seqs=4, **pool) == ([1, 2, 3, 3, 5], 1)


def test_a_block_more_preempts_another():
    """A twelfth block changes the victim: request 5 (needs 3 blocks when it comes back), not 4, falls in step 2.

    4 then decodes on, and in step 3 requests 2 and 4 (4 blocks each) and 5 (3) leave one block, request 6 needs two.
    With 11 blocks 4 is the victim; 4, 5 and 6 are admitted together in step 3 and end together.
    """
    outputs, limits = [1, 2, 3, 2, 3, 2, 2], {"max_num_seqs": 6, "block_size": 1}
    assert outcome(outputs, 2, num_blocks=11, **limits) == ([1, 2, 3, 2, 4, 4, 4], 1)
    assert outcome(outputs, 2, num_blocks=12, **limits) == ([1, 2, 3, 2, 3, 3, 5], 1)


def test_equal_lengths_and_fewer_preemptions_do_not_help():
    """Eight responses of 3 tokens in 8 and in 9 blocks: one preemption fewer, one step more.

    Recomputation gives a request all lost tokens back in one step, so at constant step time a preemption is nearly
    free; what counts is how well the last ones overlap. With 9 blocks 3 ... 6 take the pool until step 5, and request
    7 runs its three steps alone; with 8 it shares them with 5 and 6.
    """
    limits = {"max_num_seqs": 7, "block_size": 1}
    assert outcome([3] * 8, 1, num_blocks=8, **limits) == ([3, 3, 4, 4, 5, 6, 6, 7], 5)
    assert outcome([3] * 8, 1, num_blocks=9, **limits) == ([3, 3, 3, 4, 5, 5, 5, 8], 4)


def test_thrashing():
    """Where tokens cost time, more slots than the pool can feed cost their recomputation.

    The smallest case repeats one token (0.25 s). 16 responses of 32 tokens after prompts of 32 in a pool for two
    take 508 s on two slots and 607.75 s on 4 to 16 slots, with 14 preemptions.
    """
    cost = affine(base_s=1.0, token_s=0.25)
    assert outcome([1, 2, 2], 1, cost, max_num_seqs=2, block_size=1, num_blocks=3) == ([1.5, 3, 4.25], 0)
    assert outcome([1, 2, 2], 1, cost, max_num_seqs=3, block_size=1, num_blocks=3) == ([1.75, 3, 4.5], 1)
    pool = {"block_size": 1, "num_blocks": 128, "max_num_batched_tokens": 1024}
    makespans = {m: max(outcome([32] * 16, 32, cost, max_num_seqs=m, **pool)[0]) for m in (2, 4, 16)}
    assert makespans == {2: 508.0, 4: 607.75, 16: 607.75}

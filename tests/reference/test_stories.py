"""Small stories with times worked out by hand."""

import pytest

from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits
from rollsim.traces.errors import BadInput
from tests.reference.engine import Engine


def engine(*, host_s=0.0, overlap=False, token_s=0.0, kv_read_s=0.0, prefill_attn_s=0.0, **limits):
    """Steps of 1 s, ample limits; whatever a story needs otherwise it names."""
    known = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 32,
        "block_size": 4,
        "num_blocks": 64,
        "max_model_len": 64,
        **limits,
    }
    cost = StepCost.affine(
        32 * known.get("lockstep_ranks", 1),
        4,
        host_s=host_s,
        overlap=overlap,
        base_s=1.0,
        token_s=token_s,
        kv_read_s=kv_read_s,
        prefill_attn_s=prefill_attn_s,
    )
    return Engine(EngineLimits(**known), cost)


def times(running):
    running.run()
    return {id: (result.first_token_s, result.finish_s) for id, result in running.results().items()}


def test_a_request_of_n_tokens_takes_n_steps():
    story = engine(host_s=0.5)
    story.dispatch(0.0, "a", 4, 3)
    assert times(story) == {"a": (1.5, 4.5)}


def test_costs_count_chunks_and_what_decodes_read():
    story = engine(token_s=0.5, kv_read_s=0.25, prefill_attn_s=2.0, max_num_batched_tokens=3)
    story.dispatch(0.0, "a", 5, 3)
    story.run()
    # Chunks 3 and 2: 2 * 3 * 1.5 and 2 * 2 * (3 + 1) token pairs. Decodes read 6 and 7 tokens.
    lasts = [step.end_s - step.start_s for step in story.log]
    assert lasts == [1 + 1.5 + 9.0, 1 + 1.0 + 16.0, 1 + 0.5 + 1.5, 1 + 0.5 + 1.75]


def test_asynchronous_outputs_come_a_call_later_and_the_flush_takes_no_time():
    story = engine(async_scheduling=True, overlap=True)
    story.dispatch(0.0, "a", 4, 3)
    assert times(story) == {"a": (1.0, 3.0)}
    assert story.now == 3.0
    assert [step.tokens for step in story.log] == [4, 1, 1, 0]


@pytest.mark.parametrize(("is_async", "first_token_s"), [(False, 6.0), (True, 4.5)])
def test_a_slot_is_free_a_call_later_under_asynchronous_scheduling(is_async, first_token_s):
    story = engine(host_s=0.5, overlap=is_async, async_scheduling=is_async, max_num_seqs=1)
    story.dispatch(0.0, "a", 4, 3)
    story.dispatch(0.0, "b", 4, 1)
    # Synchronous: four steps of 1.5 s. Asynchronous: three of 1 s, an empty one of the host's 0.5 s, one of 1 s,
    # and b's token is processed as the flush begins.
    assert times(story)["b"] == (first_token_s, first_token_s)


def test_touches_act_at_the_step_boundary_they_reach():
    story = engine()
    story.dispatch(0.0, "a", 4, 10)
    assert story.abort(1.5, "a") == 2
    assert story.now == 2.0
    story.dispatch(5.0, "b", 4, 1)
    assert times(story) == {"a": (1.0, 2.0), "b": (6.0, 6.0)}


def test_the_last_of_running_is_preempted_and_recomputes_what_the_cache_has_lost():
    story = engine(num_blocks=4, prefix_caching=False)
    story.dispatch(0.0, "a", 8, 5)
    story.dispatch(0.0, "b", 7, 3)
    # Both prefill (2 + 2 blocks). In step 2 a needs a third block for its 9th token: b, last of running, is out.
    # a ends after step 5; b comes back with 7 + 1 tokens in step 6, and ends with the token of step 7.
    assert times(story) == {"a": (1.0, 5.0), "b": (1.0, 7.0)}
    result = story.results()["b"]
    assert (result.preemptions, result.recomputed_tokens) == (1, 8)


def test_a_sibling_hits_the_blocks_scheduled_in_the_same_step():
    story = engine()
    story.dispatch(0.0, "a", 8, 1)
    story.dispatch(0.0, "b", 8, 1, parent="a", shared_tokens=8)
    story.step()
    (rank,) = story.log[0].ranks
    # One token at least is always computed, so of two cached blocks only the first is hit.
    assert [(grant.sequence.id, grant.tokens) for grant in rank.batch.grants] == [("a", 8), ("b", 4)]
    assert rank.blocks_peak == 3


def test_rates_move_by_fractions_of_a_token():
    story = engine()
    story.dispatch(0.0, "a", 4, 6, rate=1.5, drafts=1)
    # The prefill yields 1, then 4 -> 5.5 -> 7 -> 8.5 -> end: output 2, 4, 5, 6.
    assert times(story) == {"a": (1.0, 5.0)}
    assert [step.delivered.get("a") for step in story.log] == [1, 2, 4, 5, 6]
    assert [step.tokens for step in story.log] == [4, 2, 2, 2, 2]


def test_ranks_step_together_and_the_slower_one_decides():
    story = engine(lockstep_ranks=2, kv_read_s=0.25, token_s=0.5)
    story.dispatch(0.0, "a", 3, 2)
    story.dispatch(0.0, "b", 9, 2)
    story.run()
    assert [sequence.rank for sequence in story.sequences.values()] == [0, 1]
    assert [step.end_s - step.start_s for step in story.log] == [1 + 0.5 * 12, 1 + 0.5 * 2 + 0.25 * 10]


def test_taken_out_kv_is_carried_to_another_rank():
    story = engine(lockstep_ranks=2)
    story.dispatch(0.0, "a", 6, 4)
    assert story.take_out(2.0, "a", keep_kv=True) == (2, 7)
    story.dispatch(2.0, "b", 8, 2, parent="a", shared_tokens=8, rank=1, kv_tokens=7)
    story.step()
    (grant,) = story.log[-1].ranks[1].batch.grants
    assert (grant.computed, grant.tokens, grant.is_decode) == (7, 1, True)


def test_pausing_with_a_cleared_cache_recomputes_everything():
    story = engine()
    story.dispatch(0.0, "a", 4, 4)
    story.pause(2.0, clear_cache=True)
    story.resume(10.0)
    assert times(story) == {"a": (1.0, 12.0)}
    assert story.results()["a"].recomputed_tokens == 6


def test_a_request_that_never_fits_is_named_with_every_reason():
    story = engine(chunked_prefill=False, num_blocks=2)
    with pytest.raises(BadInput, match="request a") as caught:
        story.dispatch(0.0, "a", 64, 0)
    assert [fault.place for fault in caught.value.faults] == [
        "output_tokens",
        "prompt_tokens",
        "blocks",
        "tokens without chunked prefill",
    ]

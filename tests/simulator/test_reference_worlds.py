"""The random worlds hold what they promise, and the reference keeps its own books on them."""

import json
from collections import Counter

from hypothesis import HealthCheck, given, settings

from tests.reference.engine import Engine
from tests.simulator.outcomes import Outcome, differences, outcome
from tests.simulator.worlds import World, worlds

SLOW = settings(deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))


def run(world):
    engines = []

    def factory(limits, cost):
        engines.append(Engine(limits, cost))
        return engines[0]

    return outcome(factory, world), engines[0]


@settings(SLOW, max_examples=150)
@given(worlds())
def test_nothing_is_lost_and_nothing_is_left(world):
    result, engine = run(world)
    limits = engine.limits
    for rank in engine.ranks:
        assert rank.num_unfinished == 0
        assert rank.pool.num_used == 0
        assert len({block.id for block in rank.pool.free.values()}) == limits.num_blocks
        assert all(block.references == 0 for block in rank.pool.free.values())
        keyed = [block for block in rank.pool.free.values() if block.key is not None]
        assert sorted(block.id for copies in rank.pool.copies.values() for block in copies) == sorted(
            block.id for block in keyed
        )
        assert limits.prefix_caching or not keyed
    for id, sequence in engine.sequences.items():
        got = result.requests[id]
        assert got["reason"] in ("length", "abort")
        assert got["finish_s"] <= result.end_s
        assert (got["first_token_s"] is None) == (got["output_tokens"] == 0)
        if got["reason"] == "length":
            assert got["output_tokens"] == sequence.target_tokens
            assert got["first_token_s"] <= got["finish_s"]
        assert got["cached_tokens"] < sequence.prompt_tokens + sequence.target_tokens
        assert got["recomputed_tokens"] == 0 or got["preemptions"] > 0


@settings(SLOW, max_examples=150)
@given(worlds())
def test_steps_keep_the_limits_and_deliver_every_token_once(world):
    result, engine = run(world)
    limits = engine.limits
    delivered = Counter()
    before_s = 0.0
    for step in engine.log:
        assert before_s <= step.start_s <= step.end_s
        before_s = step.end_s
        assert step.tokens == sum(rank.batch.tokens for rank in step.ranks)
        for id, output_tokens in step.delivered.items():
            assert output_tokens > delivered[id]
            delivered[id] = output_tokens
        for rank in step.ranks:
            assert rank.batch.tokens <= limits.max_num_batched_tokens
            assert rank.running <= rank.running_peak <= limits.max_num_seqs
            assert rank.blocks_used <= rank.blocks_peak <= limits.num_blocks
            assert rank.decodes <= limits.max_num_seqs
            assert all(grant.tokens > grant.drafts >= 0 for grant in rank.batch.grants)
    assert {id: tokens for id, tokens in delivered.items() if tokens} == {
        id: got["output_tokens"] for id, got in result.requests.items() if got["output_tokens"]
    }


@settings(SLOW, max_examples=60)
@given(worlds())
def test_a_world_survives_json_and_gives_the_same_outcome_again(world):
    again = World.from_dict(json.loads(json.dumps(world.to_dict())))
    assert again == world
    assert differences(outcome(Engine, world), outcome(Engine, again), tolerance=0.0) == []


@settings(SLOW, max_examples=60)
@given(worlds())
def test_running_to_many_times_on_the_way_changes_nothing(world):
    end_s = outcome(Engine, world).end_s
    looks = [{"kind": "look", "t": end_s * i / 7} for i in range(7)]
    watched = World(world.limits, world.cost, sorted([*world.touches, *looks], key=lambda touch: touch["t"]))
    assert outcome(Engine, watched).requests == outcome(Engine, world).requests


def test_differences_are_told_by_place():
    one, other = (Outcome([], {0: {"preemptions": 2, "finish_s": 3.5}}, 4.0) for _ in range(2))
    assert differences(one, other) == []
    other.requests[0]["finish_s"] *= 1 + 1e-12
    assert differences(one, other) == []
    other.requests[0]["finish_s"] *= 1 + 1e-6
    other.requests[0]["preemptions"] += 1
    told = differences(one, other)
    assert [text.split(":")[0] for text in told] == [".requests.0.preemptions", ".requests.0.finish_s"]


def test_every_feature_appears_in_a_fair_share_of_the_worlds():
    share = Counter()
    count = 300

    @settings(SLOW, max_examples=count)
    @given(worlds())
    def look(world):
        share.update(feature for feature, present in features(world).items() if present)

    look()
    least = {
        "preempted in a step": 35, "several preemptions of one request": 20, "prefix hit": 40, "recomputed": 40,
        "preempted by a touch": 20, "prompt over budget": 20, "prompt a multiple of the block": 40,
        "one-token output": 50, "cut by max_model_len": 10, "long-prefill cap": 15, "watermark": 15, "priority": 20,
        "no chunked prefill": 4, "no caching": 12, "async": 30, "sync": 30, "ranks": 15, "rates": 20,
        "fractional rate": 15, "placeholders": 4, "abort": 15, "resumed": 20, "pause": 20, "kv kept": 8,
        "kv carried": 20, "set_rate on a live request": 8, "group": 50, "deep trie": 20, "context knots": 20,
        "overlap": 15, "empty step": 5,
    }  # fmt: skip
    lacking = {name: share[name] for name, percent in least.items() if share[name] * 100 < percent * count}
    assert lacking == {}


def features(world):
    result, engine = run(world)
    limits = engine.limits
    kinds = [touch["kind"] for touch in world.touches]
    sequences = engine.sequences.values()
    dispatches = [touch for touch in world.touches if touch["kind"] == "dispatch"]
    by_id = {touch["id"]: touch for touch in dispatches}
    parents = [touch["parent"] for touch in dispatches if touch["parent"] is not None]
    return {
        "preempted in a step": any(rank.batch.preempted for step in engine.log for rank in step.ranks),
        "several preemptions of one request": any(sequence.preemptions > 1 for sequence in sequences),
        "prefix hit": any(sequence.cached_tokens for sequence in sequences),
        "recomputed": any(sequence.recomputed_tokens for sequence in sequences),
        "prompt over budget": any(touch["prompt_tokens"] > limits.max_num_batched_tokens for touch in dispatches),
        "prompt a multiple of the block": limits.block_size > 1
        and any(touch["prompt_tokens"] % limits.block_size == 0 for touch in dispatches),
        "one-token output": any(sequence.target_tokens == 1 for sequence in sequences),
        "cut by max_model_len": any(
            touch["prompt_tokens"] + touch["output_tokens"] > limits.max_model_len for touch in dispatches
        ),
        "long-prefill cap": limits.long_prefill_token_threshold > 0,
        "watermark": limits.watermark_blocks > 0,
        "priority": limits.policy == "priority",
        "no chunked prefill": not limits.chunked_prefill,
        "no caching": not limits.prefix_caching,
        "async": limits.async_scheduling,
        "sync": not limits.async_scheduling,
        "ranks": limits.lockstep_ranks > 1,
        "rates": any(touch["rate"] != 1 for touch in dispatches),
        "fractional rate": any(touch["rate"] % 1 != 0 for touch in dispatches),
        "placeholders": limits.num_speculative_tokens > 0,
        "abort": any(seen["kind"] == "abort" and seen["returned"] is not None for seen in result.seen),
        "resumed": len(result.requests) > len(dispatches),
        "pause": "pause" in kinds,
        "preempted by a touch": any(rank.batch.preempted_before for step in engine.log for rank in step.ranks),
        "kv kept": any(seen["kind"] == "take_out" and seen["returned"] and seen["returned"][1] for seen in result.seen),
        "kv carried": any(sequence.carried_tokens for sequence in sequences),
        "set_rate on a live request": any(
            seen["kind"] == "set_rate" and any(running for running, *_ in seen["state"]) for seen in result.seen
        ),
        "group": any(touch["shared_tokens"] >= touch["prompt_tokens"] for touch in dispatches),
        "deep trie": any(by_id[parent]["parent"] is not None for parent in parents),
        "context knots": len(world.cost["context_knots"]) > 1,
        "overlap": world.cost["overlap"],
        "empty step": any(step.tokens == 0 and step.end_s > step.start_s for step in engine.log),
    }

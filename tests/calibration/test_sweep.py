"""The designed batches cover what they say, within any engine's limits, and depend on nothing but the seed."""

import json

import pytest

from rollsim.calibration.recorder import record
from rollsim.calibration.speed import Speed, estimate_s, measured_speed
from rollsim.calibration.sweep import SPANS, Sweep, warm_up
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.recording import parse_recording
from rollsim.simulator.replica import unfit
from tests.calibration.fake_engine import FakeDriver, config

ENGINES = {
    "cpu": EngineLimits(32, 1_024, 32, 1_400, 2_048),
    "gpu": EngineLimits(256, 8_192, 16, 20_000, 40_960),
    "no cache": EngineLimits(64, 2_048, 16, 4_000, 4_096, prefix_caching=False),
    "two slots": EngineLimits(2, 64, 16, 40, 64),
    "one slot": EngineLimits(1, 16, 16, 8, 32),
}


@pytest.fixture(params=ENGINES)
def limits(request) -> EngineLimits:
    return ENGINES[request.param]


@pytest.mark.parametrize("span", SPANS)
def test_every_request_fits_and_every_resumed_one_was_aborted_unfinished(limits, span):
    for batch in Sweep(limits, span, 0).batches():
        own = limits
        if batch.options.get("num_gpu_blocks_override"):
            own = EngineLimits(
                limits.max_num_seqs,
                limits.max_num_batched_tokens,
                limits.block_size,
                batch.options["num_gpu_blocks_override"] - 1,
                batch.options["max_model_len"],
            )
        ids = {request.id: request for request in batch.requests}
        assert len(ids) == len(batch.requests)
        for request in batch.requests:
            assert unfit(own, request.prompt_tokens, request.output_tokens) is None, batch.name
            if request.resume_of is not None:
                stopped = ids[request.resume_of]
                assert stopped.abort_after_step is not None
                assert stopped.abort_after_step < stopped.before_step + stopped.output_tokens - 1
                assert request.before_step > stopped.abort_after_step
        prompts = {request.group: request.prompt_tokens for request in batch.requests if request.group}
        assert all(
            request.prompt_tokens == prompts.get(request.group, request.prompt_tokens) for request in batch.requests
        )


def test_the_same_seed_gives_the_same_batches_and_another_others(limits):
    one, same, other = ([batch.document() for batch in Sweep(limits, 512, seed).batches()] for seed in (0, 0, 1))
    assert one == same
    assert one != other


def test_a_longer_span_is_more_work(limits):
    speed = Speed(0.005, 0.0002, 0.0001)
    times = [estimate_s(Sweep(limits, span, 0).batches(), limits, speed) for span in SPANS]
    assert times == sorted(times, reverse=True)


def test_there_is_one_reference_and_what_is_held_out_is_not_fitted():
    batches = Sweep(ENGINES["cpu"], 512, 0).batches()
    roles = {batch.name: batch.role for batch in batches}
    assert len(roles) == len(batches)
    assert list(roles.values()).count("reference") == 1
    assert {name for name, role in roles.items() if role == "held_out"} == {
        name for name in roles if name.startswith("held_out")
    }


def test_the_batches_do_what_they_say():
    """Played on the replica: chunks, mixed steps, hits, preemptions, aborts, all slots full, one by one drained."""
    limits = EngineLimits(8, 128, 16, 400, 512)
    seen: dict[str, dict] = {}
    for batch in Sweep(limits, 256, 0).batches():
        own = limits
        if batch.options:
            own = EngineLimits(
                8,
                batch.options.get("max_num_batched_tokens", 128),
                16,
                batch.options["num_gpu_blocks_override"] - 1,
                batch.options["max_model_len"],
                prefix_caching=batch.options.get("enable_prefix_caching", True),
            )
        seen[batch.name] = record(batch, FakeDriver(own), config(own), 0)
    columns = {name: i for i, name in enumerate(seen["mixed"]["columns"])}

    def column(batch: str, name: str) -> list[int]:
        return [row[columns[name]] for row in seen[batch]["rows"]]

    assert max(column("kv_full_groups", "preempted_total")) > 0
    assert max(column("kv_full_no_cache", "preempted_total")) > 0
    assert max(column("held_out_kv_full", "preempted_total")) > 0
    assert max(column("full_0008_long", "preempted_total")) == 0
    assert any(result["cached_tokens"] for result in seen["prefix_hits"]["result"].values())
    assert any(result["cached_tokens"] for result in seen["groups"]["result"].values())
    assert not any(result["cached_tokens"] for result in seen["groups_no_cache"]["result"].values())
    assert any(result["finish_reason"] == "abort" for result in seen["aborts"]["result"].values())
    assert any(request.get("resume_partial") for request in seen["aborts"]["requests"])
    assert any(
        p and g for p, g in zip(column("mixed", "prefill_tokens"), column("mixed", "n_gen_requests"), strict=True)
    )
    assert max(column("prefill_chunks", "prefill_tokens")) == limits.max_num_batched_tokens
    assert len([k for k, tokens in enumerate(column("prefill_chunks", "prefill_tokens")) if tokens == 128]) > 2
    assert set(column("tail_drain", "n_gen_requests")) >= set(range(1, 9))
    assert max(column("all_at_once", "waiting")) > 8
    for recording in seen.values():
        parse_recording(json.dumps(recording).encode(), recording["case"])


def test_warming_up_uses_every_batch_size_and_shows_the_speed():
    limits = EngineLimits(8, 128, 16, 400, 256)
    run = record(warm_up(limits), FakeDriver(limits), config(limits), 0)
    batch, prefill = run["columns"].index("n_gen_requests"), run["columns"].index("prefill_tokens")
    assert {row[batch] for row in run["rows"]} >= set(range(1, 8))
    assert max(row[prefill] for row in run["rows"]) == 128
    speed = measured_speed(run)
    # The fake engine takes 1 ms and 10 us per token.
    assert speed.step_s == pytest.approx(1.01e-3)
    assert speed.decode_token_s == pytest.approx(1e-5)
    assert speed.prefill_token_s == pytest.approx(1e-5, rel=0.02)


def test_the_estimate_is_near_what_a_round_takes():
    limits = EngineLimits(8, 128, 16, 400, 512)
    speed = Speed(1e-3, 1e-5, 1e-5)
    batches = [batch for batch in Sweep(limits, 256, 0).batches() if not batch.options]
    real = sum(sum(record(batch, FakeDriver(limits), config(limits), 0)["wall_ms"]) / 1e3 for batch in batches)
    assert estimate_s(batches, limits, speed) == pytest.approx(real, rel=0.4)

"""Limits from a profile and options: vLLM's defaults follow what is set, and its refusals are ours."""

from dataclasses import replace

import pytest

from rollsim.simulator.engine_options import RANGES, EngineOptions, engine
from rollsim.simulator.profile_store import list_profiles, load_profile
from rollsim.traces.errors import BadInput

PROFILE = load_profile("qwen3-8b-h100-tp1-bf16")


def limits(**options):
    return engine(PROFILE, EngineOptions(**options)).limits


def faults(**options) -> list[str]:
    with pytest.raises(BadInput) as caught:
        engine(PROFILE, EngineOptions(**options))
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize("name", list_profiles())
def test_without_options_a_profile_keeps_its_own_limits(name):
    profile = load_profile(name)
    assert engine(profile, EngineOptions()).limits == profile.limits()


def test_options_reach_the_limits_under_their_own_names():
    found = limits(
        max_num_seqs=8, max_num_batched_tokens=512, max_model_len=2048, block_size=32, num_gpu_blocks_override=101,
        enable_prefix_caching=False, scheduling_policy="priority", async_scheduling=False,
        long_prefill_token_threshold=128,
    )  # fmt: skip
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.max_model_len, found.block_size) == (
        8,
        512,
        2048,
        32,
    )
    assert found.num_blocks == 100
    assert (found.prefix_caching, found.policy, found.async_scheduling) == (False, "priority", False)
    assert found.long_prefill_token_threshold == 128


def test_the_server_has_its_own_budget():
    assert limits(server=True).max_num_batched_tokens == 8192
    assert limits(server=True).num_blocks > limits().num_blocks


def test_defaults_follow_what_is_set_beside_them():
    assert limits(enable_chunked_prefill=False).max_num_batched_tokens == 40960
    assert limits(max_num_batched_tokens=100).max_num_seqs == 100
    assert limits(max_num_seqs=2, max_model_len=100).max_num_batched_tokens == 200


def test_memory_utilization_sets_the_blocks():
    assert limits(gpu_memory_utilization=0.92).num_blocks == PROFILE.kv.num_blocks
    assert limits(gpu_memory_utilization=0.5).num_blocks < PROFILE.kv.num_blocks
    assert limits(block_size=32).num_blocks == pytest.approx(PROFILE.kv.num_blocks / 2, abs=1)


def test_a_logged_block_count_is_kept():
    kv = PROFILE.kv.model_copy(update={"obtained": "logged", "how": "from the log"})
    profile = PROFILE.model_copy(update={"kv": kv})
    assert engine(profile, EngineOptions(max_num_seqs=4)).limits.num_blocks == kv.num_blocks
    assert engine(profile, EngineOptions(gpu_memory_utilization=0.5)).limits.num_blocks < kv.num_blocks


def test_unknown_hardware_needs_the_blocks_themselves():
    profile = PROFILE.model_copy(update={"gpu": PROFILE.gpu.model_copy(update={"name": "other"})})
    assert engine(profile, EngineOptions()).limits.num_blocks == PROFILE.kv.num_blocks
    with pytest.raises(BadInput, match="--num-gpu-blocks-override"):
        engine(profile, EngineOptions(gpu_memory_utilization=0.5))


@pytest.mark.parametrize("name", RANGES)
def test_values_out_of_range_say_what_is_allowed(name):
    low, high = RANGES[name]
    for value in (low - 1, high + 1):
        (fault,) = faults(**{name: value})
        assert fault.startswith("--" + name.replace("_", "-"))
        assert f"from {low} to {high}" in fault


def test_all_faults_come_at_once_with_the_closest_match():
    found = faults(replicas=0, max_num_seqs=-1, gpu_memory_utilization=1.5, scheduling_policy="prioriti")
    assert [fault.split(":")[0] for fault in found] == [
        "--replicas", "--max-num-seqs", "--gpu-memory-utilization", "--scheduling-policy",
    ]  # fmt: skip
    assert "did you mean 'priority'?" in found[3]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"max_num_seqs": 600, "max_num_batched_tokens": 500}, "at least max_num_seqs = 600"),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 2048}, "at least max_model_len = 40960"),
        ({"long_prefill_token_threshold": 50000}, "at most max_model_len = 40960"),
        ({"num_gpu_blocks_override": 101}, "set --max-model-len up to 1600, or --num-gpu-blocks-override from 2561"),
        ({"gpu_memory_utilization": 0.05}, "or more --gpu-memory-utilization"),
        ({"gpu_memory_utilization": 0.5, "num_gpu_blocks_override": 5000}, "one of the two"),
    ],
)
def test_what_vllm_refuses_is_refused(options, rule):
    assert any(rule in fault for fault in faults(**options))


def test_the_smallest_pool_that_is_allowed_works():
    assert limits(num_gpu_blocks_override=101, max_model_len=1600).num_blocks == 100
    assert limits(num_gpu_blocks_override=2561).num_blocks == 2560


def test_a_longer_context_than_the_profile_is_said():
    resolved = engine(PROFILE, EngineOptions(max_model_len=65536))
    assert resolved.limits == replace(PROFILE.limits(), max_model_len=65536)
    assert "above the 40,960" in resolved.notes[0]


def test_more_blocks_than_the_prefix_cache_can_follow_are_refused():
    """All sizes alone are allowed; together they are an allocation of terabytes."""
    options = EngineOptions(
        max_num_seqs=65_536, max_num_batched_tokens=65_536, max_model_len=16_777_216, block_size=1,
        num_gpu_blocks_override=20_000_000,
    )  # fmt: skip
    with pytest.raises(BadInput) as caught:
        engine(PROFILE, options)
    (fault,) = caught.value.faults
    assert (fault.file, fault.message) == ("--max-num-seqs", "more blocks than can be followed")
    assert engine(PROFILE, replace(options, enable_prefix_caching=False))
    most = int(fault.allowed.split()[2])
    assert engine(PROFILE, replace(options, max_num_seqs=most))

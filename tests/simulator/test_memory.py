import pytest

from rollsim.simulator import facts, memory
from rollsim.traces.errors import BadInput

# Parameter counts that the checkpoints on the hub state.
PARAMETERS = {
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.3-70b": 70_553_706_496,
    "qwen3-30b-a3b": 30_532_122_624,
}


def plan(model, gpu, *, tp=1, dtype="bf16", utilization=0.92, tokens=None):
    gpu_facts = facts.gpu(gpu)
    return memory.plan(
        facts.model(model),
        gpu_facts,
        dtype=dtype,
        tp=tp,
        max_num_batched_tokens=tokens or gpu_facts.defaults.max_num_batched_tokens,
        max_num_seqs=gpu_facts.defaults.max_num_seqs,
        utilization=utilization,
        block_size=16,
    )


@pytest.mark.parametrize(("name", "parameters"), PARAMETERS.items())
def test_parameters_counted_from_the_shape_equal_the_checkpoint(name, parameters):
    assert facts.model(name).parameters == parameters


def test_bytes_per_token_by_hand():
    # 36 layers x 8 KV heads x 128 x (K and V) x 2 bytes
    assert memory.kv_bytes_per_token(facts.model("qwen3-8b"), 1) == 36 * 8 * 128 * 2 * 2
    assert memory.kv_bytes_per_token(facts.model("qwen3-8b"), 4) == 36 * 2 * 128 * 2 * 2
    # four KV heads on eight ranks: every rank keeps one
    assert memory.kv_bytes_per_token(facts.model("qwen3-30b-a3b"), 8) == 48 * 1 * 128 * 2 * 2


def test_tokens_match_what_an_engine_logged():
    # vLLM on one GPU of 79.25 GiB at 0.92, Llama-3.1-8B in bf16: "GPU KV cache size: 460,496 tokens",
    # weights and non-torch 15.26 GiB, peak activation 1.44 GiB (public start-up log, October 2026).
    assert plan("llama-3.1-8b", "a100").kv_tokens == pytest.approx(460_496, rel=0.01)


def test_fp8_keeps_embeddings_in_bf16():
    model = facts.model("qwen3-8b")
    assert memory.weight_bytes(model, "bf16", 1) - memory.weight_bytes(model, "fp8", 1) == (
        model.parameters - model.embedding_parameters
    )


def test_weights_that_do_not_fit_leave_no_block():
    assert plan("llama-3.3-70b", "h100").kv_bytes < 0
    assert plan("llama-3.3-70b", "h100").num_blocks == 0


@pytest.mark.parametrize("gpu", ["a100", "h100", "h200", "b200"])
def test_more_of_anything_that_helps_never_costs_blocks(gpu):
    assert plan("qwen3-32b", gpu, tp=2).num_blocks < plan("qwen3-32b", gpu, tp=4).num_blocks
    assert plan("qwen3-32b", gpu, tp=4, utilization=0.8).num_blocks < plan("qwen3-32b", gpu, tp=4).num_blocks
    assert plan("qwen3-32b", gpu, tp=4).num_blocks < plan("qwen3-32b", gpu, tp=4, tokens=1024).num_blocks


def test_graph_sizes_by_hand():
    assert memory.graph_sizes(8, 8192, 512) == (1, 2, 4, 8, 16)
    default = memory.graph_sizes(1024, 8192, 512)
    assert default[:5] == (1, 2, 4, 8, 16)
    assert default[-2:] == (496, 512)
    assert 248 in default
    assert 264 not in default
    assert len(default) == 3 + 31 + 17
    assert memory.graph_sizes(1024, 16384, 1024)[-1] == 1024
    # sizes off the grid: the largest batch and the token budget are captured too
    assert 100 in memory.graph_sizes(100, 8192, 512)
    assert memory.graph_sizes(1024, 300, 512)[-1] == 300


@pytest.mark.parametrize(("find", "given", "near"), [(facts.model, "qwen3-8", "qwen3-8b"), (facts.gpu, "h10", "h100")])
def test_unknown_name_says_the_closest(find, given, near):
    with pytest.raises(BadInput, match=near) as caught:
        find(given)
    assert caught.value.faults[0].closest == near

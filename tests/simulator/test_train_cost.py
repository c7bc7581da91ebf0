"""Costs of a train step by hand."""

import numpy as np
import pytest

from rollsim.simulator import facts
from rollsim.simulator.train_flops import attention_flops, deal, token_parameters, weight_flops
from tests.simulator.published import MODELS, cost

# Qwen3-8B: 8,190,735,360 parameters, of which 151,936 x 4,096 are the input embedding; 36 layers, 32 heads of 128.
WORKING = 8_190_735_360 - 151_936 * 4_096
H100 = 989e12
ALL_EXPOSED = {"exposed_communication": 1.0, "link_bytes_per_s": 1e9}


def forward_s(tokens, made):
    weights = 2 * WORKING * sum(tokens) / (H100 * made.rates.mfu)
    attention = 2 * 36 * 32 * 128 * sum(token**2 for token in tokens) / (H100 * made.rates.attention_mfu)
    return weights + attention


def test_flops_of_a_dense_model_by_hand():
    model = MODELS["Qwen3-8B"]
    assert token_parameters(model) == WORKING
    assert weight_flops(model, np.array([1000]))[0] == 2 * WORKING * 1000
    assert attention_flops(model, np.array([1000]))[0] == 2 * 36 * 32 * 128 * 1000**2
    # Six FLOPs a parameter and token, forward and backward: 6 x 8.19e9 less the embedding.
    assert 3 * weight_flops(model, np.array([1]))[0] == pytest.approx(6 * 7.57e9, rel=1e-3)


def test_attention_flops_are_those_of_the_pairs_under_the_mask():
    # Scores and values: two products of head_dim multiply-adds for each of L (L + 1) / 2 pairs.
    pairs = 20000 * 20001 / 2
    by_pairs = 36 * 32 * 2 * (2 * 128) * pairs
    assert attention_flops(MODELS["Qwen3-8B"], np.array([20000]))[0] == pytest.approx(by_pairs, rel=1e-4)


def test_lengths_of_32_bits_do_not_overflow():
    tokens = np.array([100_000], dtype=np.int32)
    assert attention_flops(MODELS["Qwen3-8B"], tokens)[0] == 2 * 36 * 32 * 128 * 1e10
    assert weight_flops(MODELS["Qwen3-8B"], tokens)[0] == 2.0 * WORKING * 1e5


def test_flops_of_a_mixture_count_the_chosen_experts():
    # Qwen3-30B-A3B: 48 layers of 128 experts of 3 x 2,048 x 768, 8 of them chosen; it is called A3B.
    model = MODELS["Qwen3-30B-A3B"]
    assert token_parameters(model) == model.parameters - 48 * 120 * 3 * 2048 * 768 - 151_936 * 2_048
    assert 2.9e9 < token_parameters(model) < 3.4e9


def test_gradients_by_hand():
    made = cost(gpus=2, **ALL_EXPOSED)
    work = made.gradients(np.array([1000, 3000, 2000, 4000]))
    first, second = forward_s([4000, 1000], made), forward_s([3000, 2000], made)
    assert work.busy_s + work.slack_s == pytest.approx(4 * max(first, second), rel=1e-12)
    assert work.busy_s == pytest.approx(4 * (first + second) / 2, rel=1e-12)
    # One micro-batch of 5,000 tokens; half of the weights are another rank's.
    assert work.communication_s == pytest.approx(6 * 8_190_735_360 * 0.5 / 1e9, rel=1e-12)
    assert (work.bubble_s, made.communication_s) == (0, 0)
    assert made.optimizer_s == pytest.approx(30 * 8_190_735_360 / (2 * 3.35e12), rel=1e-12)


def test_a_pass_without_gradients_by_hand():
    made = cost(gpus=2, **ALL_EXPOSED)
    slowest = max(forward_s([4000, 1000], made), forward_s([3000, 2000], made))
    moved = 2 * 8_190_735_360 * 0.5 / 1e9
    assert made.forward_s(np.array([1000, 3000, 2000, 4000])) == pytest.approx(slowest + moved, rel=1e-12)


def test_an_update_with_the_optimizer_sharded_by_hand():
    made = cost(gpus=16, model_parallel=8, layout={"sharding": "optimizer", "pipeline": 4}, **ALL_EXPOSED)
    assert made.communication_s == pytest.approx(4 * 8_190_735_360 / 8 * 0.5 / 1e9, rel=1e-12)
    # Two ranks of eight sequences of 4,096 tokens: two micro-batches pass four stages.
    work = made.gradients(np.full(16, 4096))
    assert work.busy_s == pytest.approx(4 * forward_s([4096] * 8, made) / 8, rel=1e-12)
    assert work.bubble_s == pytest.approx(work.busy_s * 3 / 2, rel=1e-12)
    assert (work.slack_s, work.communication_s) == (0, 0)


def test_micro_batches_are_as_many_as_the_fullest_rank_needs():
    def gathers(tokens, limit):
        made = cost(gpus=2, layout={"max_tokens_per_gpu": limit}, **ALL_EXPOSED)
        return made.gradients(np.array(tokens)).communication_s / (6 * 8_190_735_360 / 2 / 1e9)

    assert gathers([1000] * 20, 10_000) == pytest.approx(1)
    assert gathers([1000] * 20, 5_000) == pytest.approx(2)
    assert gathers([1000] * 20, 4_999) == pytest.approx(3)
    # A sequence over the limit makes room for itself.
    assert gathers([8000, 8000], 1_000) == pytest.approx(1)


def test_without_recomputation_three_quarters():
    tokens = np.full(16, 2000)
    assert cost(recompute=False).gradients(tokens).busy_s == pytest.approx(0.75 * cost().gradients(tokens).busy_s)


def test_fp8_speeds_up_products_with_weights_alone():
    tokens = np.full(8, 1000)
    slow, fast = (cost(layout={"dtype": dtype}).gradients(tokens).busy_s for dtype in ("bf16", "fp8"))
    weights = 4 * 2 * WORKING * 1000 / (H100 * cost().rates.mfu)
    assert slow - fast == pytest.approx(weights * (1 - 989 / 1979), rel=1e-9)


def test_deal_balances_and_loses_nothing():
    tokens = np.random.default_rng(0).lognormal(7, 1, size=1000).astype(int)
    dealt = deal(tokens, 8)
    assert sorted(dealt[dealt > 0]) == sorted(tokens[tokens > 0])
    per_rank = dealt.sum(axis=0)
    assert per_rank.max() / per_rank.mean() < 1.05


def test_fewer_sequences_than_ranks_leave_ranks_idle():
    work = cost(gpus=8).gradients(np.array([1000, 1000]))
    assert work.slack_s == pytest.approx(3 * work.busy_s)


@pytest.mark.parametrize("gpu", facts.gpus().values(), ids=lambda gpu: gpu.name)
def test_peaks_are_those_of_the_data_sheets(gpu):
    # 80 GB A100 and H100 read all their memory in 39 and 24 ms; fp8 is twice bf16 where there is any.
    assert 0.017 < gpu.memory_gib * 1024**3 / gpu.memory_bytes_per_s < 0.045
    assert gpu.flops.get("fp8", 2 * gpu.flops["bf16"]) == pytest.approx(2 * gpu.flops["bf16"], rel=1e-3)

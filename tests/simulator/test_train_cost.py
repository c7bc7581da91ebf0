"""Costs of a train step: by hand, and against published runs (the table of docs/costs.md)."""

from pathlib import Path

import numpy as np
import pytest

from rollsim.simulator.gpu_rates import RATES
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.train_cost import Rates, TrainCost, deal, token_parameters

MODELS = {
    "Qwen3-8B": load_profile("qwen3-8b-h100-tp1-bf16").model,
    "Qwen3-30B-A3B": load_profile("qwen3-30b-a3b-h100-tp1-bf16").model,
}
# Without the input embedding, which is no matrix product.
MODELS["Qwen3-4B"] = MODELS["Qwen3-8B"].model_copy(
    update={"hf_name": "Qwen/Qwen3-4B", "layers": 36, "heads": 32, "head_dim": 128, "parameters": 3_633_511_936}
)
MINUS = "\N{MINUS SIGN}"
PAGE = Path(__file__).parents[2] / "docs" / "costs.md"


def cost(model="Qwen3-8B", gpu="H100-SXM-80GB", gpus=8, model_parallel=1, recompute=True, **rates):
    return TrainCost(MODELS[model], RATES[gpu], gpus, model_parallel, recompute, Rates(**rates))


def test_flops_of_a_dense_model_by_hand():
    # Qwen3-8B: 8,190,735,360 parameters, of which 151,936 x 4,096 are the input embedding; 36 layers, 32 heads of 128.
    parameters = 8_190_735_360 - 151_936 * 4_096
    assert token_parameters(MODELS["Qwen3-8B"]) == parameters
    expected = 2 * parameters * 1000 + 2 * 36 * 32 * 128 * 1000**2
    assert cost().forward_flops(np.array([1000]))[0] == pytest.approx(expected, rel=1e-12)


def test_flops_of_a_mixture_count_the_chosen_experts():
    # Qwen3-30B-A3B: 48 layers of 128 experts of 3 x 2,048 x 768, 8 of them chosen; it is called A3B.
    model = MODELS["Qwen3-30B-A3B"]
    idle = 48 * 120 * 3 * 2048 * 768
    assert token_parameters(model) == model.parameters - idle - 151_936 * 2_048
    assert 2.9e9 < token_parameters(model) < 3.4e9


def test_an_update_by_hand():
    tokens = np.array([1000, 3000, 2000, 4000])
    slow = cost(gpus=2, mfu=0.5, exposed=1.0, link_bytes_per_s=1e9)
    per_rank = slow.forward_flops(np.array([4000]))[0] + slow.forward_flops(np.array([1000]))[0]
    other = slow.forward_flops(np.array([3000]))[0] + slow.forward_flops(np.array([2000]))[0]
    rate = 989e12 * 0.5
    work = slow.gradients(tokens)
    assert work.busy_s + work.slack_s == pytest.approx(4 * max(per_rank, other) / rate, rel=1e-12)
    assert work.busy_s == pytest.approx(4 * (per_rank + other) / 2 / rate, rel=1e-12)
    assert slow.communication_s == pytest.approx(4 * 8_190_735_360 * 0.5 / 1e9, rel=1e-12)
    assert slow.optimizer_s == pytest.approx(30 * 8_190_735_360 / (2 * 3.35e12), rel=1e-12)


def test_without_recomputation_three_quarters():
    tokens = np.full(16, 2000)
    assert cost(recompute=False).gradients(tokens).busy_s == pytest.approx(0.75 * cost().gradients(tokens).busy_s)


def test_deal_balances_and_loses_nothing():
    weights = np.random.default_rng(0).lognormal(size=1000)
    dealt = deal(weights, 8)
    assert dealt.sum() == pytest.approx(weights.sum())
    assert dealt.max() / dealt.mean() < 1.05


ROWS = [
    ("Qwen3-4B", "H100-SXM-80GB", 16384, 4.69, "fitted"),
    ("Qwen3-4B", "H100-SXM-80GB", 65536, 30.29, "fitted"),
    ("Qwen3-4B", "H200-SXM-141GB", 16384, 4.42, "predicted"),
    ("Qwen3-30B-A3B", "H200-SXM-141GB", 16384, 7.40, "predicted"),
    ("Qwen3-30B-A3B", "H200-SXM-141GB", 65536, 42.89, "predicted"),
    ("Qwen3-30B-A3B", "H100-SXM-80GB", 16384, 8.17, "predicted"),
    ("Qwen3-4B", "B200-SXM-180GB", 16384, 4.63, "predicted"),
]


def seconds(model, gpu, tokens):
    c = cost(model, gpu)
    return c.gradients(np.full(16, tokens)).busy_s + c.communication_s + c.optimizer_s


@pytest.mark.parametrize(("model", "gpu", "tokens", "measured_s", "grade"), ROWS)
def test_published_steps_are_as_the_page_says(model, gpu, tokens, measured_s, grade):
    found = seconds(model, gpu, tokens)
    error = (
        f"{100 * (found / measured_s - 1):+.0f}".replace("-", MINUS).removeprefix("+0").removeprefix(MINUS + "0") or "0"
    )
    row = f"| {model}, {gpu.split('-')[0]}, {tokens // 1024}k | {measured_s:.2f} | {found:.2f} | {error} % | {grade} |"
    assert row in PAGE.read_text(encoding="utf-8")


def test_mfu_is_the_mean_of_what_the_fitted_runs_need():
    needed = [
        cost("Qwen3-4B", gpu, mfu=1.0).gradients(np.full(16, tokens)).busy_s / measured_s
        for _, gpu, tokens, measured_s, grade in ROWS
        if grade == "fitted"
    ]
    assert Rates().mfu == pytest.approx(np.sqrt(np.prod(needed)), abs=0.005)

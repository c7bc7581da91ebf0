"""Memory of a train GPU by hand, against the paper and against published peaks."""

import pytest

from rollsim.simulator.train_memory import GIB, LOW_BY, layer_bytes, memory_faults, memory_notes, train_memory
from tests.simulator.published import MODELS, cost, error, table

P = 8_190_735_360


def test_state_by_hand():
    memory = train_memory(cost(gpus=8), 1000)
    assert (memory.weights, memory.gradients, memory.optimizer) == (2 * P / 8, 4 * P / 8, 12 * P / 8)
    sharded = train_memory(cost(gpus=16, model_parallel=4, layout={"sharding": "optimizer"}), 1000)
    assert (sharded.weights, sharded.gradients, sharded.optimizer) == (2 * P / 4, 4 * P / 4, 12 * P / 16)
    # Megatron's distributed optimizer: 6 + 12 / ranks bytes a parameter.
    assert sharded.state == pytest.approx((6 + 12 / 4) * P / 4)


def test_critic_and_reference_add_their_own():
    alone, both = train_memory(cost(), 1000), train_memory(cost(), 1000, critic=True, reference=True)
    assert (both.weights, both.gradients) == (3 * alone.weights, 2 * alone.gradients)
    assert both.optimizer == 2 * alone.optimizer


def test_a_layer_keeps_what_the_paper_says():
    # Korthikanti et al.: 34 hidden, of which 2 are dropout masks, for attention as wide as hidden and an MLP of
    # 2 + 16 hidden; 8 x intermediate = 16 hidden makes the same of a gated MLP.
    hidden = 4096
    attention = 2 * 128 * (2 * 32 + 2 * 8)
    assert layer_bytes(MODELS["Qwen3-8B"]) == 8 * hidden + attention + 8 * 12288
    full_heads = 8 * hidden + 2 * 128 * 4 * 32 + 8 * (2 * hidden)
    assert full_heads == (34 - 2) * hidden
    assert layer_bytes(MODELS["Qwen3-4B"]) == 34 * MODELS["Qwen3-4B"].hidden


def test_activations_and_logits_by_hand():
    layer = layer_bytes(MODELS["Qwen3-8B"])
    whole = train_memory(cost(recompute=False), 1000)
    assert whole.activations == 16384 * 37 * layer
    again = train_memory(cost(), 20000, fused_logits=False)
    assert again.activations == 20000 * (35 * 2 * 4096 + 2 * layer)
    assert again.logits == 20000 * 151936 * 10
    tensor = train_memory(cost(gpus=16, model_parallel=8, layout={"pipeline": 2}), 20000, fused_logits=False)
    assert tensor.activations == again.activations / 4
    assert tensor.logits == again.logits / 4
    assert train_memory(cost(), 20000).logits == 0


def test_what_stays_and_what_is_moved():
    memory = train_memory(cost(), 1000)
    assert (memory.kept(True), memory.offloaded(True)) == (0, memory.weights + memory.optimizer)
    assert (memory.kept("optimizer"), memory.offloaded("optimizer")) == (memory.weights, memory.optimizer)
    assert (memory.kept(False), memory.offloaded(False)) == (memory.weights + memory.optimizer, 0)


def test_what_fits_has_no_faults():
    made = cost()
    assert memory_faults(train_memory(made, 8192), made, "run.yaml") == []


def test_state_that_does_not_fit_asks_for_gpus():
    made = cost(gpus=1)
    (fault,) = memory_faults(train_memory(made, 8192), made, "run.yaml")
    assert (fault.file, fault.place, fault.given) == ("run.yaml", "cluster.gpus", "1 for training")
    assert "more train GPUs" in fault.allowed
    assert f"optimizer {12 * P / GIB:.1f}" in fault.message


def test_a_micro_batch_that_does_not_fit_says_what_would_help():
    made = cost(recompute=False, layout={"max_tokens_per_gpu": 32768})
    (fault,) = memory_faults(train_memory(made, 8192), made, "run.yaml")
    assert fault.place == "train.max_tokens_per_gpu"
    assert "recompute" in fault.allowed
    assert "activations" in fault.message


def test_what_fits_barely_is_said():
    roomy, tight = cost(gpus=8), cost(gpus=2, layout={"max_tokens_per_gpu": 8192})
    assert memory_faults(train_memory(tight, 8192), tight, "run.yaml") == []
    assert memory_notes(train_memory(roomy, 8192), roomy) == []
    (note,) = memory_notes(train_memory(tight, 8192), tight)
    assert "95%" in note


def test_no_published_peak_is_further_from_the_form_than_the_note_says():
    errors = [float(row["model GiB"]) / float(row["measured GiB"]) - 1 for row in table("Peak memory")]
    assert -min(errors) == pytest.approx(LOW_BY, abs=0.005)


@pytest.mark.parametrize("row", table("Peak memory"), ids=lambda row: f"{row['model']} {row['tokens']}")
def test_the_page_shows_what_the_model_says(row):
    memory = train_memory(cost(row["model"], row["GPU"], int(row["GPUs"])), int(row["tokens"].replace(",", "")))
    found = memory.total / GIB
    assert (row["model GiB"], row["error"]) == (f"{found:.1f}", error(found, float(row["measured GiB"])))

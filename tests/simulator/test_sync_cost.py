"""Weight sync and switch: by hand, and against published syncs (the table of docs/costs.md)."""

from pathlib import Path

import pytest

from rollsim.simulator.sync_cost import PATHS, SyncCost

MINUS = "\N{MINUS SIGN}"
PAGE = Path(__file__).parents[2] / "docs" / "costs.md"
# Weights in bf16 [bytes] by the parameters that the checkpoints state.
BYTES = {
    "Qwen2.5-7B": 2 * 7.616e9,
    "Qwen2.5-32B": 2 * 32.764e9,
    "Qwen2.5-72B": 2 * 72.706e9,
    "Qwen3-8B": 2 * 8.191e9,
    "Qwen3-30B-A3B": 2 * 30.532e9,
    "Qwen3-235B-A22B": 2 * 235.094e9,
}
ROWS = [
    ("nccl", "Qwen2.5-7B", "H100", 5.75, "fitted"),
    ("nccl", "Qwen2.5-72B", "H100", 28.8, "fitted"),
    ("nccl", "Qwen2.5-32B", "H100", 14.2, "predicted"),
    ("nccl", "Qwen3-30B-A3B", "H100, expert parallel", 32.2, "predicted"),
    ("nccl", "Qwen3-235B-A22B", "H100, expert parallel", 256, "predicted"),
    ("nccl", "Qwen3-8B", "A100, 8 + 8", 11.0, "predicted"),
    ("delta", "Qwen3-30B-A3B", "H100", 7.1, "predicted"),
]


@pytest.mark.parametrize(("path", "model", "where", "published_s", "grade"), ROWS)
def test_published_syncs_are_as_the_page_says(path, model, where, published_s, grade):
    found = PATHS[path].seconds(BYTES[model])
    error = round(100 * (found / published_s - 1))
    shown = f"{error:+d}".replace("-", MINUS) if error else "0"
    row = f"| {path}, {model}, {where} | {published_s} | {found:.3g} | {shown} % | {grade} |"
    page = PAGE.read_text(encoding="utf-8").replace("5.70 |", "5.7 |").replace("5.90 |", "5.9 |")
    assert row in page


def test_parts_by_hand():
    cost = SyncCost(PATHS["disk"], 16e9, replica_gpus=2, offloaded_bytes=50e9)
    assert cost.sync_s == pytest.approx(2 + 16e9 / 2e9)
    assert cost.push_s == pytest.approx(0.5 + 16e9 / 20e9)
    assert cost.pull_s == pytest.approx(0.5 + 8e9 / 50e9)
    assert cost.switch_s == pytest.approx(1 + 50e9 / 25e9)


def test_p2p_meets_the_one_sync_it_was_fitted_to():
    assert PATHS["p2p"].seconds(BYTES["Qwen3-30B-A3B"]) == pytest.approx(4.38, abs=0.05)

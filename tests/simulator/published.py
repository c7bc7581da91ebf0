"""Published train steps and weight syncs: the tables of docs/costs.md, read back."""

from pathlib import Path

import numpy as np

from rollsim.simulator.facts import gpu
from rollsim.simulator.profile_parts import Train
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.train_cost import TrainCost
from rollsim.simulator.train_flops import is_mixture
from rollsim.simulator.train_rates import rates, values

PAGE = Path(__file__).parents[2] / "docs" / "costs.md"
README = Path(__file__).parents[2] / "README.md"
MINUS = "\N{MINUS SIGN}"

_8B = load_profile("qwen3-8b-h100-tp1-bf16").model


def _dense(name, layers, hidden, heads, parameters):
    shape = {"layers": layers, "hidden": hidden, "heads": heads, "head_dim": 128}
    return _8B.model_copy(update={"hf_name": name, "parameters": parameters, **shape})


# Parameters that work on a token: embeddings that are tied count once, as the output head.
MODELS = {
    "Qwen3-8B": _8B,
    "Qwen3-30B-A3B": load_profile("qwen3-30b-a3b-h100-tp1-bf16").model,
    "Qwen3-4B": _dense("Qwen/Qwen3-4B", 36, 2560, 32, 4_022_468_096),
    "Qwen3-0.6B": _dense("Qwen/Qwen3-0.6B", 28, 1024, 16, 596_049_920),
    "Qwen2-7B": _dense("Qwen/Qwen2-7B", 28, 3584, 28, 7_070_619_136),
}


def cost(model="Qwen3-8B", gpu_name="h100", gpus=8, model_parallel=1, recompute=True, layout=None, **stated):
    facts = gpu(gpu_name.lower())
    made = values(Train(), stated, mixture=is_mixture(MODELS[model]), gpu=facts.name)
    return TrainCost(MODELS[model], facts, gpus, model_parallel, recompute, rates(made), **(layout or {}))


def table(heading):
    """Rows of the table under a heading, as dicts of cells."""
    text = PAGE.read_text(encoding="utf-8").split(f"### {heading}\n")[1].split("\n#")[0]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def shown(seconds):
    return f"{seconds:#.3g}".rstrip(".")


def error(found, measured):
    percent = round(100 * (found / measured - 1))
    return f"{percent:+d} %".replace("-", MINUS) if percent else "0 %"


def predicted(rows, within_percent):
    """How many rows are predicted, and how many of these within so many percent, as the README says it."""
    errors = [int(row["error"].removesuffix(" %").replace(MINUS, "-")) for row in rows if row["grade"] == "predicted"]
    return len(errors), sum(abs(percent) <= within_percent for percent in errors)


def train_s(row, **stated):
    """Seconds of the pass or update that a row of the train table states."""
    megatron = row["how"] == "TP2 PP2"
    layout = {"sharding": "optimizer", "pipeline": 2} if megatron else None
    made = cost(
        row["model"], row["GPU"], int(row["GPUs"]), 4 if megatron else 1, row["recompute"] == "yes", layout, **stated
    )
    tokens = np.full(int(row["sequences"].replace(",", "")), int(row["tokens"].replace(",", "")))
    if row["what"] == "log-probabilities":
        return made.forward_s(tokens)
    work = made.gradients(tokens)
    return work.busy_s + work.slack_s + work.bubble_s + work.communication_s + made.communication_s + made.optimizer_s

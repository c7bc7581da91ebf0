"""Rollouts of a real small model on arithmetic: lengths, rewards and times as the engine made them, no text.

    python -m rollsim.calibration.arithmetic_rollouts MODEL OUT.parquet

Made the trace `example:arithmetic`, with SmolLM2-135M-Instruct on a CPU. Needs vLLM, and the model's tokenizer.
"""

import importlib
import os
import platform
import random
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rollsim.calibration.vllm_driver import import_vllm
from rollsim.traces.schema import build

GROUPS, SAMPLES, MAX_TOKENS, MAX_NUM_SEQS = 240, 8, 512, 64
_INSTRUCTION = "Explain it in a few steps, then give the number."


@dataclass(frozen=True)
class Problem:
    """A question and the whole number that answers it."""

    question: str
    answer: int


def problems(count: int, seed: int = 0) -> Iterator[Problem]:
    """Yield sums, differences, products and terms of both, harder from one to the next and then easy again."""
    rng = random.Random(seed)
    for i in range(count):
        digits = 1 + i // 4 % 8 // 6
        a, b, c = (rng.randrange(10 ** (digits - 1), 10**digits) for _ in range(3))
        small = rng.randrange(2, 10)
        yield (
            Problem(f"What is {a} + {b}?", a + b),
            Problem(f"What is {max(a, b)} - {min(a, b)}?", abs(a - b)),
            Problem(f"What is {a} * {small}?", a * small),
            Problem(f"What is {a} + {b} - {c}?", a + b - c),
        )[i % 4]


def reward(text: str, answer: int) -> float:
    """1 if the last number of a response is the answer, else 0."""
    numbers = re.findall(r"-?\d[\d,]*", text)
    return float(bool(numbers) and int(numbers[-1].replace(",", "")) == answer)


def generate(model: str, groups: int = GROUPS, seed: int = 0) -> dict[str, Any]:
    """Let vLLM answer all problems, all responses handed in at once.

    Returns
    -------
    dict
        Columns of the table ``rollouts``.
    """
    vllm = import_vllm(model)
    engine = importlib.import_module("vllm.v1.engine.llm_engine").LLMEngine.from_engine_args(
        vllm.EngineArgs(
            model=model,
            seed=seed,
            max_model_len=1_024,
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=1_024,
            block_size=32,
            enforce_eager=True,
            kv_cache_memory_bytes=1 << 30,
            async_scheduling=False,
            disable_log_stats=False,
        )
    )
    tokenizer = engine.get_tokenizer()
    asked = list(problems(groups, seed))
    prompts = [_prompt_ids(tokenizer, problem) for problem in asked]
    began_s = time.monotonic()
    for group, ids in enumerate(prompts):
        for sample in range(SAMPLES):
            params = vllm.SamplingParams(temperature=1.0, max_tokens=MAX_TOKENS)
            engine.add_request(f"{group}-{sample}", {"prompt_token_ids": ids}, params)
    done = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                done[output.request_id] = output
    return _columns(asked, prompts, done, began_s)


def _prompt_ids(tokenizer: Any, problem: Problem) -> list[int]:
    messages = [{"role": "user", "content": f"{problem.question} {_INSTRUCTION}"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _columns(asked: list[Problem], prompts: list[list[int]], done: dict[str, Any], began_s: float) -> dict[str, Any]:
    rows = []
    for group, problem in enumerate(asked):
        for sample in range(SAMPLES):
            output = done[f"{group}-{sample}"]
            answer, times = output.outputs[0], output.metrics
            cut = answer.finish_reason == "length"
            rows.append(
                {
                    "group_id": group,
                    "sample_id": f"{group}-{sample}",
                    "prompt_tokens": len(prompts[group]),
                    "output_tokens": len(answer.token_ids),
                    "finish_reason": answer.finish_reason,
                    "is_truncated": cut,
                    "max_output_tokens": MAX_TOKENS,
                    "reward": reward(answer.text, problem.answer),
                    "t_submit_s": 0.0,
                    "t_start_s": times.scheduled_ts - began_s,
                    "t_first_token_s": times.first_token_ts - began_s,
                    "t_end_s": times.last_token_ts - began_s,
                }
            )
    columns = {name: pa.array([row[name] for row in rows]) for name in rows[0]}
    return columns | {"framework": "vllm", "status": "finished"}


def main() -> None:
    """Write the table, with where it came from in its metadata."""
    model, out = sys.argv[1], Path(sys.argv[2])
    table = build("rollouts", generate(model))
    about = {
        "model": Path(model).name,
        "engine": f"vllm {import_vllm(model).__version__}",
        "machine": f"{os.cpu_count()} CPU cores, {platform.machine()}, one compute thread",
        "temperature": "1.0",
        "max_num_seqs": str(MAX_NUM_SEQS),
        "license": "Apache-2.0",
    }
    pq.write_table(table.replace_schema_metadata((table.schema.metadata or {}) | about), out, compression="zstd")


if __name__ == "__main__":
    main()

"""Small logs of each framework, made by hand: no text of anybody's, every number chosen to be checked by hand."""

import io
import json
import pickle
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def jsonl(path: Path, rows: list[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def verl(folder: Path) -> Path:
    """Two steps; the first with uids of two prompts, the second without, where equal prompts are a group."""
    row = {"input": "2 + 2", "output": "4", "gts": "4", "score": 1.0}
    jsonl(
        folder / "dump/1.jsonl",
        [row | {"step": 1, "uid": f"{prompt}_{session}_0"} for prompt in ("p", "q") for session in (0, 1)],
    )
    jsonl(
        folder / "dump/2.jsonl",
        [row | {"step": 2, "input": text, "score": 0.0, "request_id": f"r{i}"} for i, text in enumerate("aab")],
    )
    jsonl(folder / "val_dump/2.jsonl", [row | {"step": 2}])
    step = {"timing_s/step": 9.0, "timing_s/gen": 5.0, "response_length/max": 3.0, "response_length/clip_ratio": 0.5}
    jsonl(folder / "metrics/run.jsonl", [{"step": n, "data": step} for n in (1, 2)])
    return folder


def areal(folder: Path) -> Path:
    """Task 7 has two samples and two sessions, task 8 a sample alone, task 9 a rejected session alone."""
    trajectory = {
        "seqlen": 30,
        "prompt_len": 10,
        "head_version": 3,
        "tail_version": 4,
        "prompt": "x",
        "completion": "y",
    }
    for task, count in ((7, 2), (8, 1)):
        rows = [trajectory | {"task_id": task, "sample_idx": i, "reward": float(i)} for i in range(count)]
        jsonl(folder / f"rollout/4/{task}.jsonl", rows)
    session = {
        "task_id": 7, "session_id": 0, "rank": 0, "status": "accepted", "submit_ts": 1000.0, "finalized_ts": 1009.0,
        "total_s": 9.0, "generate_s": 5.0, "toolcall_s": 1.0, "reward_s": 0.5,
        "phases": {
            "generate": [{"start_ts": 1001.0, "end_ts": 1003.0}, {"start_ts": 1004.0, "end_ts": 1007.0}],
            "toolcall": [{"start_ts": 1003.0, "end_ts": 1004.0}],
            "reward": [{"start_ts": 1007.0, "end_ts": 1007.5}],
        },
    }  # fmt: skip
    later = session | {"session_id": 1, "submit_ts": 1002.0, "phases": {}}
    rejected = session | {"task_id": 9, "status": "rejected", "reason": "stale", "phases": {}}
    jsonl(folder / "session_tracer/sessions-r0.jsonl", [session, rejected])
    jsonl(folder / "session_tracer/sessions-r1.jsonl", [later])
    event = {
        "name": "train_step",
        "ph": "X",
        "ts": 1.002e9,
        "dur": 5e5,
        "pid": 0,
        "tid": 0,
        "cat": "compute",
        "args": {},
    }
    jsonl(folder / "perf_tracer/traces-r0.jsonl", [event, event | {"ph": "i"}])
    return folder


def slime(folder: Path, *, zipped: bool = True) -> Path:
    """One rollout of two samples, one with a tool's tokens and a traced call, as `torch.save` or a pickle writes it."""
    events = [
        {"type": "span_start", "name": "sglang_generate", "ts": 50.0, "span_id": "a"},
        {"type": "span_end", "name": "sglang_generate", "ts": 54.0, "span_id": "a", "attrs": {"completion_tokens": 4}},
        {"type": "span_start", "name": "reward_model", "ts": 54.0, "span_id": "b"},
        {"type": "span_end", "name": "reward_model", "ts": 55.0, "span_id": "b"},
    ]
    traced = {
        "group_index": 2, "index": 8, "tokens": list(range(20)), "response_length": 12, "label": None, "reward": 1.0,
        "loss_mask": [1] * 9 + [0] * 3, "weight_versions": ["3", "4"], "status": "completed",
        "prefix_cache_info": {"cached_tokens": 5, "total_prompt_tokens": 8}, "trace": {"attempt": 1, "events": events},
    }  # fmt: skip
    cut = traced | {"index": 9, "loss_mask": None, "status": "truncated", "reward": {"a": 1}, "trace": {}}
    data = pickle.dumps({"rollout_id": 6, "samples": [traced, cut]})
    if zipped:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("rollout_6/data.pkl", data)
            archive.writestr("rollout_6/version", "3")
        data = packed.getvalue()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rollout_6.pt").write_bytes(data)
    return folder


def prime_rl(folder: Path) -> Path:
    """An episode of two calls with a tool between them, and one not trained on; the metrics have a clock."""
    calls = [
        {"finish_reason": "tool_calls", "usage": {"prompt_tokens": 10, "completion_tokens": 5},
         "time": {"start": 1001.0, "end": 1003.0}},
        {"finish_reason": "length", "usage": {"prompt_tokens": 7, "completion_tokens": 6, "cached_input_tokens": 15},
         "time": {"start": 1005.0, "end": 1008.0}},
    ]  # fmt: skip
    trace = {
        "id": "t", "nodes": [], "calls": calls, "is_completed": True,
        "rewards": {"right": {"score": 1.0, "weight": 1.0}, "short": {"score": 0.5, "weight": 0.2}, "off": None},
        "timing": {
            "start": 1000.0, "boot": {"start": 0.0, "end": 0.0}, "scoring": {"start": 1008.0, "end": 1008.5},
            "agent": {"start": 1000.5, "end": 1008.0, "model": {"duration": 5.0}, "harness": {"duration": 2.0}},
        },
    }  # fmt: skip
    run = {"work": {"type": "train", "step": 3, "policy": {"start": 2, "end": 3}}}
    episode = {"id": "e1", "env": {"id": "m", "name": "math"}, "group": {"id": "g1"}, "run": run, "traces": [trace]}
    other = episode | {"id": "e2", "traces": [trace | {"calls": calls[:1]}]}
    jsonl(folder / "rollouts/step_4/train/all/traces.jsonl", [episode, other])
    jsonl(folder / "rollouts/step_4/train/effective/traces.jsonl", [episode])
    jsonl(folder / "rollouts/step_4/eval/all/traces.jsonl", [episode | {"id": "e3"}])
    jsonl(folder / "metrics.jsonl", [{"step": n, "time": 1000.0 + 10 * n, "time/step": 10.0} for n in (3, 4)])
    return folder


def nemo_rl(folder: Path) -> Path:
    """Three samples of a step: two responses to one prompt, one of them in two turns, and another prompt."""
    row = {
        "content": ["x"], "rewards": [1.0], "input_lengths": [9], "token_ids": [[1, 2, 3, 4, 5, 6, 7, 8, 9, 0]],
        "token_loss_mask": [[0, 0, 0, 1, 1, 1, 1, 1, 1, 0]], "sample_loss_mask": [1.0],
    }  # fmt: skip
    turns = row | {"idx": 1, "token_loss_mask": [0, 0, 0, 1, 1, 0, 0, 1, 1, 0], "rewards": 0.0}
    other = row | {"idx": 2, "token_ids": [3, 2, 1, 4, 5, 6, 7, 8, 9, 0]}
    jsonl(folder / "train_data_step5.jsonl", [row | {"idx": 0}, turns, other])
    return folder


def trl(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    table = {
        "step": [3, 3], "prompt": ["one", "one"], "completion": ["a b", "c"], "right": [1.0, 0.0],
        "short": [0.25, float("nan")], "advantage": [1.0, -1.0],
    }  # fmt: skip
    pq.write_table(pa.table(table), folder / "completions_00003.parquet")
    return folder


def vllm_bench(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "duration": 9.0, "completed": 2, "failed": 1, "input_lens": [10, 20, 30], "output_lens": [3, 4, 0],
        "ttfts": [0.5, 1.0, 0.0], "itls": [[0.1, 0.2], [0.1, 0.1, 0.1], []], "start_times": [5000.0, 5001.0, 5002.0],
        "queue_times": [0.0, 0.5, 0.0],
        "errors": ["", "", "timeout"],
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(document))
    return folder


def guidellm(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    timings = {
        "targeted_start": 100.0, "request_start": 100.5, "first_token_iteration": 101.0, "last_token_iteration": 103.0,
        "request_end": 103.5, "finalized": 104.0,
    }  # fmt: skip
    request = {
        "request_id": "q", "info": {"conversation_id": "c", "turn_index": 0, "status": "completed", "timings": timings},
        "prompt_tokens": 7, "cached_tokens": 2, "output_tokens": 5, "request_latency": 3.0,
    }  # fmt: skip
    requests = {"successful": [request], "incomplete": [], "errored": [request | {"request_id": "z"}]}
    (folder / "report.json").write_text(json.dumps({"benchmarks": [{"requests": requests}]}, indent=1))
    return folder


def mooncake(folder: Path) -> Path:
    row = {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
    jsonl(folder / "trace.jsonl", [row, row | {"timestamp": 3000, "output_length": 490}])
    return folder


def azure(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.9799600,4808,10",
             "2023-11-16 18:17:04.4799600,3180,8"]  # fmt: skip
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    return folder


LOGS = {
    "verl": verl, "areal": areal, "slime": slime, "prime-rl": prime_rl, "nemo-rl": nemo_rl, "trl": trl,
    "vllm-bench": vllm_bench, "guidellm": guidellm, "mooncake": mooncake, "azure": azure,
}  # fmt: skip


STEP_LOGS = {
    "verl.log": "(Task pid=3) step:1 - timing_s/step:20.5 - timing_s/gen:np.float64(9.5) - response_length/mean:3.0\n",
    "openrlhf.log": "Global step 1: {'timing/step_total': 10.0, 'timing/generation': 5.0, 'timing/ppo_train': nan}\n",
    "slime.log": "perf 0: {'perf/rollout_time': 9.0}\nrollout 0: {'rollout/raw_reward': tensor(0.25)}\n",
    "areal.csv": "_step,_timestamp,timeperf/rollout,timeperf/train_step\n1,5.0,3.0,2.0\n2,15.0,3.0,2.0\n",
    "prime-rl.jsonl": '{"step": 1, "time": 5.5, "time/step": 2.0}\n{"step": 2, "time": 9.5, "time/step": 3.0}\n',
    "nemo-rl.json": '{"timing/train/total_step_time": {"1": 7.0, "2": 8.0}, "train/reward": {"1": 0.5}}\n',
    "trainer_state.json": '{"log_history": [{"step": 5, "step_time": 3.0, "completions/mean_length": 40.0}]}\n',
}

"""What an opened vLLM engine says of itself: its version, its model, its device and its limits."""

import importlib
import math
import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rollsim.simulator.facts import gpus
from rollsim.simulator.limits import EngineLimits

GIB = 1 << 30
_GPU_FACTS = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem")


def engine_facts(driver: Any) -> dict[str, Any]:
    """Return the part of a measurement's manifest that describes the engine: engine, model, device, clock, limits.

    The clock to trust is the process's own time on a CPU with one compute thread, where others may take the core away,
    and that of the wall elsewhere.
    """
    with driver.tap.internals():
        threads = int(importlib.import_module("torch").get_num_threads())
        cpu = driver.build == "cpu"
        return {
            "engine": {
                "name": "vllm",
                "version": driver.version,
                "build": driver.build,
                "scheduling": "async" if driver.config.scheduler_config.async_scheduling else "sync",
                "enforce_eager": bool(driver.config.model_config.enforce_eager),
                "graph_sizes": _graph_sizes(driver.config),
                "compute_threads": threads,
                "scheduler": {
                    "scheduler_reserve_full_isl": bool(driver.config.scheduler_config.scheduler_reserve_full_isl),
                    "num_lookahead_tokens": int(driver.config.num_lookahead_tokens),
                },
            },
            "model": _model(driver.config),
            "device": cpu_facts() if cpu else gpu_facts(),
            "clock": "cpu" if cpu and threads == 1 else "wall",
            "limits": asdict(limits(driver)),
        }


def limits(driver: Any) -> EngineLimits:
    """Limits as the scheduler has them."""
    scheduler, cache = driver.config.scheduler_config, driver.config.cache_config
    active = scheduler.max_num_active_seqs
    return EngineLimits(
        max_num_seqs=min(scheduler.max_num_seqs, active or scheduler.max_num_seqs),
        max_num_batched_tokens=scheduler.max_num_scheduled_tokens or scheduler.max_num_batched_tokens,
        block_size=cache.block_size,
        num_blocks=cache.num_gpu_blocks - 1,
        max_model_len=driver.config.model_config.max_model_len,
        long_prefill_token_threshold=scheduler.long_prefill_token_threshold,
        long_prefill_adaptive=bool(scheduler.long_prefill_token_threshold_adaptive),
        watermark_blocks=int(scheduler.watermark * cache.num_gpu_blocks),
        prefix_caching=bool(cache.enable_prefix_caching),
        chunked_prefill=bool(scheduler.enable_chunked_prefill),
        policy="priority" if str(scheduler.policy) == "priority" else "fcfs",
        async_scheduling=bool(scheduler.async_scheduling),
        num_speculative_tokens=int(driver.config.num_speculative_tokens or 0),
    )


def _graph_sizes(config: Any) -> list[int]:
    """Batch sizes for which CUDA graphs are captured; none where there are no graphs."""
    compilation = config.compilation_config
    if config.model_config.enforce_eager or not compilation.cudagraph_mode:
        return []
    return sorted(int(size) for size in compilation.cudagraph_capture_sizes or ())


def _model(config: Any) -> dict[str, Any]:
    model = config.model_config
    dtype = str(model.dtype).removeprefix("torch.")
    kv_dtype = str(config.cache_config.cache_dtype)
    path = Path(model.model)
    return {
        # A folder is known by its own name: where it lies on this machine is nobody's business.
        "name": path.name if path.is_dir() else str(model.model),
        "layers": int(model.get_num_layers(config.parallel_config)),
        "heads": int(model.hf_text_config.num_attention_heads),
        "kv_heads": int(model.get_total_num_kv_heads()),
        "head_dim": int(model.get_head_size()),
        "hidden": int(model.get_hidden_size()),
        "parameters": _parameters(model.hf_config),
        "dtype": dtype,
        "kv_dtype": dtype if kv_dtype == "auto" else kv_dtype,
    }


def _parameters(hf_config: Any) -> int | None:
    """Parameters counted from the shape alone; None for a model that transformers cannot lay out."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    try:
        with torch.device("meta"):
            return int(transformers.AutoModelForCausalLM.from_config(hf_config).num_parameters())
    except (ValueError, RuntimeError, ImportError):
        return None


def cpu_facts() -> dict[str, Any]:
    """What this machine says of its processor and memory."""
    names = [
        line.split(":", 1)[1].strip()
        for line in (_text("/proc/cpuinfo") or "").splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    count = os.cpu_count()
    return {
        "kind": "cpu",
        "name": f"{names[0] if names else 'CPU'} ({count} cores)",
        "memory_gib": round(memory, 1),
        "driver": "",
        "clocks": "",
    }


def gpu_facts() -> dict[str, Any]:
    """What the first GPU says of itself."""
    cuda = importlib.import_module("torch").cuda
    properties = cuda.get_device_properties(0)
    asked = _gpu_queried()
    return {
        "kind": "gpu",
        "name": next(
            (gpu.name for gpu in gpus().values() if gpu.runtime_name == properties.name), str(properties.name)
        ),
        "memory_gib": math.floor(properties.total_memory / GIB * 10) / 10,
        "driver": asked.pop("driver_version", ""),
        "clocks": ", ".join(f"{name} {value}" for name, value in asked.items()),
    }


def _gpu_queried() -> dict[str, str]:
    """What nvidia-smi knows of the first GPU; nothing where it is not there."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_GPU_FACTS)}", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(_GPU_FACTS, (part.strip() for part in done.stdout.strip().split(",")), strict=False))


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return None

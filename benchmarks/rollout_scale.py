"""CPU, events and memory of a replayed rollout phase, beside the step-by-step reference in the same run.

    python benchmarks/rollout_scale.py --samples 65536 --replicas 64 --json
    python benchmarks/rollout_scale.py --samples 65536 --replicas 1,8,64,512,1024

Groups of 8 with a prompt of 512 tokens and lognormal responses (median 2,500, sigma 0.9, cap 16,384), all at t=0, on
the shipped profile of Qwen3-8B on one H100. Times are CPU seconds of this process after import and compilation; what
counts is the ratio to the reference and the number of events, since machines differ.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rollsim.simulator.kernel import loop
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.replay import parents, replay
from rollsim.traces.requests import RequestTrace
from rollsim.traces.writer import write_run
from tests.reference.engine import Engine

PROFILE = "qwen3-8b-h100-tp1-bf16"
REFERENCE_SAMPLES = 64


def workload(samples: int, seed: int, median: float, sigma: float, cap: int) -> RequestTrace:
    """`samples` responses in groups of 8, all at t=0."""
    lengths = np.random.default_rng(seed).lognormal(np.log(median), sigma, samples)
    output = np.clip(lengths, 1, cap).astype(np.int64)
    zeros = np.zeros(samples, np.int64)
    index = np.arange(samples)
    prompt = np.full(samples, 512)
    return RequestTrace("benchmark", None, zeros * 1.0, prompt, output, index // 8, zeros, index, "row", "", ())


def peak_bytes() -> int:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def kernel_seconds() -> Iterator[list[float]]:
    """CPU seconds spent in the compiled loop, within the block."""
    feed, spent = loop.feed, [0.0]

    def timed(*arguments: Any) -> Any:
        start = time.process_time()
        result = feed(*arguments)
        spent[0] += time.process_time() - start
        return result

    loop.feed = timed
    try:
        yield spent
    finally:
        loop.feed = feed


def measure(trace: RequestTrace, replicas: int, limits, cost) -> dict[str, float]:
    """One replay with its tables written."""
    before = peak_bytes()
    start = time.process_time()
    with kernel_seconds() as kernel_s:
        done = replay(trace, limits, cost, replicas=replicas)
    simulated = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder) / "run", done.tables, {}, {}, seed=0)
    end = time.process_time()
    table_bytes = sum(table.nbytes for table in done.tables.values())
    return {
        "samples": len(trace),
        "replicas": replicas,
        "cpu_s": end - start,
        "cpu_simulate_s": simulated - start,
        "cpu_kernel_s": kernel_s[0],
        "us_per_sample": (end - start) / len(trace) * 1e6,
        "events": done.events,
        "engine_steps": done.steps,
        "preemptions": int(done.tables["rollouts"]["num_preempted"].to_numpy().sum()),
        "makespan_s": done.span_s,
        "table_bytes_per_sample": table_bytes / len(trace),
        "peak_mib": peak_bytes() / 2**20,
        "peak_growth_bytes_per_sample": (peak_bytes() - before) / len(trace),
    }


def reference_ratio(limits, cost, seed: int, median: float, sigma: float, cap: int) -> dict[str, float]:
    """CPU of the step-by-step reference over that of the replay, for one replica of a small batch."""
    trace = workload(REFERENCE_SAMPLES, seed, median, sigma, cap)
    start = time.process_time()
    engine = Engine(limits, cost)
    for i, parent in enumerate(parents(trace.group)):
        shared = 0 if parent < 0 else int(trace.prompt_tokens[i])
        engine.dispatch(
            0.0,
            i,
            int(trace.prompt_tokens[i]),
            int(trace.output_tokens[i]),
            parent=None if parent < 0 else int(parent),
            shared_tokens=shared,
        )
    engine.run()
    reference_s = time.process_time() - start
    start = time.process_time()
    done = replay(trace, limits, cost)
    own_s = time.process_time() - start
    return {
        "samples": len(trace),
        "reference_cpu_s": reference_s,
        "replay_cpu_s": own_s,
        "ratio": reference_s / own_s,
        "makespan_difference": abs(engine.now - done.span_s) / done.span_s,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=65536)
    parser.add_argument("--replicas", default="64", help="number, or several with commas")
    parser.add_argument("--kv-blocks", type=int, help="KV blocks of a replica instead of the profile's")
    parser.add_argument("--median", type=float, default=2500.0)
    parser.add_argument("--sigma", type=float, default=0.9)
    parser.add_argument("--cap", type=int, default=16384)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    profile = load_profile(PROFILE)
    limits = profile.limits()
    if options.kv_blocks:
        limits = replace(limits, num_blocks=options.kv_blocks)
    cost = profile.step_cost(limits)
    lengths = (options.seed, options.median, options.sigma, options.cap)
    # Compiles, and loads what writes tables: neither is a request's.
    measure(workload(64, *lengths), 1, limits, cost)
    trace = workload(options.samples, *lengths)
    runs = [measure(trace, int(n), limits, cost) for n in options.replicas.split(",")]
    result = {"profile": PROFILE, "runs": runs, "reference": reference_ratio(limits, cost, *lengths)}
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for run in runs:
        print("  ".join(f"{name} {value:,.6g}" for name, value in run.items()))
    print("  ".join(f"{name} {value:,.4g}" for name, value in result["reference"].items()))


if __name__ == "__main__":
    main()

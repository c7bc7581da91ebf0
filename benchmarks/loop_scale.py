"""CPU, wakes and memory of the loop: synchronous, asynchronous and asked at every finish, many trajectories.

    python benchmarks/loop_scale.py --json
    python benchmarks/loop_scale.py --only sync,async --steps 100
    python benchmarks/loop_scale.py --only many --steps 1200

Qwen3-8B on H100, 1,024 prompts x 8 responses a step, lengths of the law rollpacker-math-14b. Times are CPU seconds of
this process after import and compilation, tables not written; machines differ, so that the ratios between the rows and
the numbers of wakes are what to compare. `finish` repeats an asynchronous run with as many trajectories for each
replica on 8 to 1,024 replicas.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rollsim.simulator.config import parse
from rollsim.simulator.setup import resolve
from rollsim.simulator.world import World

LAW = "rollpacker-math-14b"


def config(gpus: int, steps: int, prompts: int, policies: dict, samples: int = 8) -> dict:
    """A config as a document."""
    return {
        "model": {"profile": "qwen3-8b-h100-tp1-bf16"},
        "cluster": {"gpus": gpus},
        "train": {"steps": steps, "prompts_per_step": prompts, "samples_per_prompt": samples, "mini_batches": 4},
        "workload": {"law": LAW},
        "policies": policies,
    }


def synchronous(steps: int, prompts: int = 1024) -> dict:
    """All GPUs generate, then all train."""
    return config(64, steps, prompts, {"routing": "least_load"})


def asynchronous(steps: int, replicas: int = 64, prompts: int = 1024) -> dict:
    """Staleness at most 4, as many trajectories under way as 128 a replica, asked at every finish."""
    policies = {
        "allocation": {"use": "static_split", "rollout_gpus": replicas},
        "admission": [{"use": "staleness_quota", "eta": 4}, {"use": "concurrency", "trajectories": 128 * replicas}],
        "routing": "least_load",
        "weight_sync": {"use": "in_flight"},
    }
    return config(2 * replicas, steps, prompts, policies)


def measure(name: str, document: dict) -> dict[str, float | str]:
    """One run."""
    setup = resolve(parse(document))
    start = time.process_time()
    world = World(setup)
    world.run()
    cpu_s = time.process_time() - start
    finished = int((world.trajectories.rows["t_end_s"] >= 0).sum())
    return {
        "run": name,
        "replicas": setup.replicas,
        "steps": len(world.steps),
        "trajectories": world.trajectories.n,
        "wakes": world.wakes,
        "cpu_s": cpu_s,
        "us_per_trajectory": 1e6 * cpu_s / finished,
        "kernel_events": sum(int(s.engine[0]["events"]) for s in world.pool.states()),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def runs(only: set[str], steps: int) -> list[dict[str, float | str]]:
    """Those that were asked for."""
    for document in (synchronous(1, 16), asynchronous(1, 8, 64)):
        World(resolve(parse(document))).run()
    rows = []
    if "sync" in only:
        rows.append(measure("sync", synchronous(steps)))
    if "async" in only:
        rows.append(measure("async", asynchronous(steps)))
    if "finish" in only:
        rows += [measure("finish", asynchronous(2, replicas, 16 * replicas)) for replicas in (8, 64, 1024)]
    if "many" in only:
        rows.append(measure("many", synchronous(steps)))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="sync,async,finish", help="some of sync, async, finish, many, with commas")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = runs(set(options.only.split(",")), options.steps)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(
            "  ".join(
                f"{key} {value:,.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
            )
        )


if __name__ == "__main__":
    main()

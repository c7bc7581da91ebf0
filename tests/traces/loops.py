"""Tables of a tiny loop, checked by head: two steps of two groups of two, on 4 GPUs for 40 s."""

import numpy as np
import pyarrow as pa

from rollsim.traces.schema import build

GPUS, SPAN_S = 4, 40.0


def rollouts(**changed) -> pa.Table:
    """Ten trajectories: eight trained, one discarded, one in flight."""
    nan = np.nan
    columns = {
        "sample_id": pa.array([str(i) for i in range(10)]),
        "group_id": np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4]),
        "prompt_tokens": np.full(10, 10),
        "output_tokens": np.array([1, 2, 3, 4, 5, 6, 7, 8, 20, 9]),
        "recomputed_tokens": np.zeros(10, int),
        "version_start": np.array([0, 0, 0, 0, 0, 1, 0, 0, 0, 1]),
        "version_end": np.array([0, 0, 0, 0, 0, 1, 1, 1, 0, 1]),
        "version_trained": np.ma.masked_less([0, 0, 0, 0, 1, 1, 1, 1, -1, -1], 0),
        "step_trained": np.ma.masked_less([0, 0, 0, 0, 1, 1, 1, 1, -1, -1], 0),
        "t_submit_s": np.array([0.0, 0, 0, 0, 0, 16, 0, 0, 0, 16]),
        "t_start_s": np.array([0.0, 0, 0, 0, 0, 16, 0, 0, 0, 16]),
        "t_first_token_s": np.array([1.0, 1, 1, 1, 1, 17, 1, 1, 1, 17]),
        "t_end_s": np.array([2.0, 3, 4, 10, 20, 21, 22, 25, 5, nan]),
        "t_final_s": np.array([2.0, 3, 4, 10, 20, 21, 22, 25, 5, nan]),
        "status": pa.array(["finished"] * 9 + ["in_flight"]),
        "fate": pa.array(["trained"] * 8 + ["discarded", "undecided"]),
        "is_extra": np.zeros(10, bool),
        "is_truncated": np.zeros(10, bool),
        "replica": np.arange(10) % 2,
    }
    return build("rollouts", columns | changed)


def steps(**changed) -> pa.Table:
    """The first from 0 to 16 s, the second from 16 to 40 s."""
    columns = {
        "step": np.array([0, 1]),
        "version": np.array([1, 2]),
        "t0_s": np.array([10.0, 26.0]),
        "t1_s": np.array([14.0, 37.0]),
        "published_s": np.array([16.0, 40.0]),
        "generate_s": np.array([10.0, 10.0]),
        "train_s": np.array([4.0, 10.0]),
        "weight_sync_s": np.array([2.0, 2.0]),
        "trajectories": np.array([4, 4]),
        "prompt_tokens": np.array([40, 40]),
        "output_tokens": np.array([10, 26]),
    }
    return build("steps", columns | changed)


def ledger(**changed) -> pa.Table:
    """160 GPU-seconds: 2 GPUs a pool."""
    columns = {
        "pool": pa.array(["rollout", "rollout", "rollout", "rollout", "train", "train", "train"]),
        "category": pa.array(["decode", "decode", "tail_bubble", "sync", "forward_backward", "starved", "sync"]),
        "cause": pa.array([None, None, "others", "weights", None, "no batch", "weights"]),
        "fate": pa.array(["trained", "discarded", None, None, None, None, None]),
        "discard_reason": pa.array([None, "stale", None, None, None, None, None]),
        "gpu_s": np.array([36.0, 20.0, 16.0, 8.0, 32.0, 40.0, 8.0]),
    }
    return build("ledger", columns | changed)


def gauges(**changed) -> pa.Table:
    """One sample a replica."""
    columns = {
        "t_s": np.array([1.0, 1.0]),
        "replica": np.array([0, 1]),
        "running": np.array([4, 5]),
        "waiting": np.array([0, 0]),
        "kv_used_blocks": np.array([7, 8]),
        "kv_total_blocks": 8,
        "num_preempted": np.array([0, 0]),
    }
    return build("gauges", columns | changed)


def loop() -> dict[str, pa.Table]:
    """All of them."""
    return {"rollouts": rollouts(), "steps": steps(), "gauges": gauges(), "ledger": ledger()}

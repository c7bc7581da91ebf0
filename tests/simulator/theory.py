"""Shared by the theory tests: small engines whose behavior textbooks describe, and the errors of their means."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.replica import Replica

Floats = NDArray[np.float64]


def ample(**changes: Any) -> EngineLimits:
    """Limits that never bind (no prefix cache), but for those given."""
    fields = {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 64,
        "block_size": 1024,
        "num_blocks": 1 << 16,
        "max_model_len": 1 << 20,
        "prefix_caching": False,
    }
    return EngineLimits(**(fields | changes))


def constant_step(limits: EngineLimits, step_s: float = 1.0) -> StepCost:
    """Cost of an engine whose every step lasts `step_s`."""
    return StepCost.affine(limits.max_num_batched_tokens, limits.max_num_seqs, base_s=step_s)


def batch(
    limits: EngineLimits,
    cost: StepCost,
    outputs: Iterable[int],
    *,
    prompt_tokens: int = 1,
    priorities: Sequence[int] | None = None,
    log_spans: bool = False,
) -> Replica:
    """Run a static batch, all queued at t = 0, to its end; ids are 0..n-1 in the order of `outputs`."""
    replica = Replica(limits, cost, log_spans=log_spans)
    for i, n in enumerate(outputs):
        replica.dispatch(0.0, i, prompt_tokens, int(n), priority=0 if priorities is None else priorities[i])
    replica.run()
    return replica


def stream(limits: EngineLimits, cost: StepCost, arrivals_s: Floats, outputs: NDArray[np.int64]) -> Replica:
    """Run one-token prompts that arrive at `arrivals_s` (ascending) to the end."""
    replica = Replica(limits, cost, capacity=len(arrivals_s))
    for i, (t_s, n) in enumerate(zip(arrivals_s.tolist(), outputs.tolist(), strict=True)):
        replica.dispatch(t_s, i, 1, n)
    replica.run()
    return replica


def finishes_s(replica: Replica) -> Floats:
    """Finish time of every request in the order of dispatch [s]."""
    return np.array([result.finish_s for result in replica.results().values()], dtype=np.float64)


def preemptions(replica: Replica) -> int:
    """Preemptions of all requests together."""
    return sum(result.preemptions for result in replica.results().values())


def cycle_starts(arrivals_s: Floats, finish_s: Floats) -> NDArray[np.int64]:
    """Indices of the requests that find the engine empty: where a renewal process of busy cycles begins anew."""
    busy_until_s = np.maximum.accumulate(finish_s)[:-1]
    return np.concatenate([[0], 1 + np.flatnonzero(busy_until_s <= arrivals_s[1:])])


def cycle_mean(values: Floats, starts: NDArray[np.int64]) -> tuple[float, float]:
    """Mean of a value per request and its standard error.

    Requests of one busy cycle depend on each other, cycles do not: the ratio estimator of regenerative simulation
    (Asmussen & Glynn, Stochastic Simulation, 2007, chapter IV). The last, cut cycle is left out.
    """
    sums = np.add.reduceat(values, starts)[:-1]
    counts = np.diff(starts)
    mean = sums.sum() / counts.sum()
    residuals = sums - mean * counts
    return float(mean), float(np.sqrt(np.sum(residuals**2)) / counts.sum())

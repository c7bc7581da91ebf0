"""What the cost model sees of every step of a recording, computed by the simulator, which takes the same steps.

The cost of a step is linear in what is to be fitted: the simulator's clock under a cost of 1 for one thing and of 0 for
all others counts that thing.
"""

from typing import NamedTuple

import numpy as np

from rollsim.simulator.costs import StepCost
from rollsim.simulator.judge import Comparison, replay_recording
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.recording import Recording
from rollsim.simulator.stepped import Step
from rollsim.simulator.stepped_replica import SteppedReplica
from rollsim.traces.errors import BadInput, Fault

_PREFILL = 1 << 32


class Features(NamedTuple):
    """Arrays, one entry per step.

    Attributes
    ----------
    tokens
        Scheduled tokens.
    prefill
        Whether some of them are prefill.
    sequences, kv_tokens
        Decoding sequences, and KV tokens that they read.
    pairs
        Token pairs of prefill chunks: n tokens after c computed ones make n (c + n / 2).
    """

    tokens: np.ndarray
    prefill: np.ndarray
    sequences: np.ndarray
    kv_tokens: np.ndarray
    pairs: np.ndarray

    def seconds(self, cost: StepCost) -> np.ndarray:
        """Time of each step [s], as `StepCost.step_s`; a call that schedules nothing takes none."""
        dense_s = np.where(self.prefill, cost.mixed_s[self.tokens], cost.decode_s[self.tokens])
        gpu_s = dense_s + cost.kv_read_s[self.sequences] * self.kv_tokens + cost.prefill_attn_s * self.pairs
        step_s = np.maximum(cost.host_s, gpu_s) if cost.overlap else cost.host_s + gpu_s
        return np.where(self.tokens > 0, step_s, 0.0)


def features(recording: Recording) -> Features:
    """Count what each step of a recording costs for.

    Raises
    ------
    BadInput
        The simulator does not take the recorded steps; names the first that differs.
    """
    limits = recording.limits
    counts = np.arange(limits.max_num_batched_tokens + 1, dtype=float)
    flagged = counts + _PREFILL
    flagged[0] = 0.0
    dense, compared = _clocked(recording, _cost(limits, counts, flagged, np.zeros(limits.max_num_seqs + 1)))
    if (difference := compared.difference) is not None:
        columns = ", ".join(f"{name} {real} and not {ours}" for name, (real, ours) in difference.columns.items())
        message = f"the simulator takes other steps: {columns or 'other requests are scheduled'}"
        raise BadInput(Fault(recording.name, f"step {difference.step}", message=message))
    nothing = 0 * counts
    sequences = np.arange(limits.max_num_seqs + 1, dtype=float)
    kv_tokens, _ = _clocked(recording, _cost(limits, nothing, nothing, np.ones_like(sequences)))
    products, _ = _clocked(recording, _cost(limits, nothing, nothing, sequences))
    pairs, _ = _clocked(recording, _cost(limits, nothing, nothing, 0 * sequences, prefill_attn_s=1.0))
    prefill = dense >= _PREFILL
    return Features(
        np.rint(dense - _PREFILL * prefill).astype(np.int64),
        prefill,
        np.rint(products / np.maximum(kv_tokens, 1.0)).astype(np.int64),
        np.rint(kv_tokens),
        np.rint(2 * pairs) / 2,
    )


def _cost(
    limits: EngineLimits,
    decode_s: np.ndarray,
    mixed_s: np.ndarray,
    kv_read_s: np.ndarray,
    prefill_attn_s: float = 0.0,
) -> StepCost:
    return StepCost(
        host_s=0.0,
        overlap=limits.async_scheduling,
        decode_s=decode_s,
        mixed_s=mixed_s,
        kv_read_s=kv_read_s,
        prefill_attn_s=prefill_attn_s,
        context_knots=np.zeros(1),
        context_slopes=np.ones(1),
        context_offsets=np.zeros(1),
    )


class _Clocked(SteppedReplica):
    """Notes how long every step takes."""

    def __init__(self, limits: EngineLimits, cost: StepCost) -> None:
        super().__init__(limits, cost)
        self.seconds: list[float] = []

    def step(self) -> Step | None:
        """Take one."""
        before_s = self.now_s
        step = super().step()
        if step is not None:
            self.seconds.append(self.now_s - before_s)
        return step


def _clocked(recording: Recording, cost: StepCost) -> tuple[np.ndarray, Comparison]:
    engine = _Clocked(recording.limits, cost)
    compared = replay_recording(recording, engine)
    return np.array(engine.seconds), compared

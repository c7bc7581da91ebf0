"""How fast an engine is, roughly, and how long batches will take on it: enough to plan, not to predict."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rollsim.calibration.batch import Batch
from rollsim.calibration.measurement_tables import scheduled
from rollsim.simulator.limits import EngineLimits


@dataclass(frozen=True)
class Speed:
    """Seconds of a step, and of each decode and prefill token in it."""

    step_s: float
    decode_token_s: float
    prefill_token_s: float


def measured_speed(warm_up: Mapping[str, Any]) -> Speed:
    """Read the speed off the recording of `rollsim.calibration.sweep.warm_up`."""
    requests = [n for n, _ in scheduled(warm_up["columns"], warm_up["rows"])]
    steps = [
        (sum(chunks.values()), count - len(chunks), wall_ms / 1e3)
        for chunks, count, wall_ms in zip(warm_up["prefill_chunks"], requests, warm_up["wall_ms"], strict=True)
    ]
    decoding = [(batch, seconds) for prefill, batch, seconds in steps if not prefill and batch]
    largest = max((batch for batch, _ in decoding), default=1)
    one_s = _median(seconds for batch, seconds in decoding if batch == 1) or min(seconds for _, _, seconds in steps)
    full_s = _median(seconds for batch, seconds in decoding if batch == largest) or one_s
    most, most_s = max((prefill, seconds) for prefill, _, seconds in steps)
    return Speed(
        step_s=one_s,
        decode_token_s=max(0.0, full_s - one_s) / max(1, largest - 1),
        prefill_token_s=max(0.0, most_s - one_s) / most,
    )


def estimate_s(batches: Iterable[Batch], limits: EngineLimits, speed: Speed) -> float:
    """Time for one run of each batch [s]: steps as long as the longest response or the slots take, and their tokens."""
    total = 0.0
    for batch in batches:
        longest = max(request.output_tokens for request in batch.requests)
        last = max(request.before_step for request in batch.requests)
        steps = max(longest, last, batch.output_tokens / limits.max_num_seqs + longest / 2)
        tokens_s = batch.output_tokens * speed.decode_token_s + batch.prompt_tokens * speed.prefill_token_s
        total += steps * speed.step_s + tokens_s
    return total


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None

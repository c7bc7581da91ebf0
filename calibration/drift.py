"""What a running server does in a window of time, beside what a profile predicts of the same state.

Between two scrapes of its metrics a server makes n steps and g tokens: B = g / n sequences decode in a step, and read U
KV tokens, the share of its blocks that is in use. Prompt tokens that were computed, p, fill k = p / (budget - B) steps:

    predicted = (n - k) decode(B, U) + k mixed(budget, U)

Where requests end in the window, Little's law (1961) tells the batch that the profile would have at the same load: B =
arrivals per second x tokens of a response x step(B, U(B)), with U(B) = B (prompt + half of the response).

A profile has drifted if the median of the last `DECIDING` ratios of real to predicted time lies outside the tolerance:
one slow window, or a few, says nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollsim.calibration.server_metrics import ServerMetrics
from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits

DECIDING = 5
_ENDED = 5
_ROUNDS = 60


@dataclass(frozen=True)
class Window:
    """A window in which the server was never seen idle.

    Attributes
    ----------
    at_s, seconds
        When it ended since the watch began, and how long it was [s].
    steps
        Engine steps in it.
    tokens_per_s, predicted_tokens_per_s
        Generated.
    batch, predicted_batch
        Sequences that decoded in a step; at the same load. None where too few requests ended.
    kv_share, predicted_kv_share
        Share of the KV blocks in use.
    """

    at_s: float
    seconds: float
    steps: float
    tokens_per_s: float
    predicted_tokens_per_s: float
    batch: float
    predicted_batch: float | None
    kv_share: float
    predicted_kv_share: float | None

    @property
    def ratio(self) -> float:
        """Real over predicted time."""
        return self.predicted_tokens_per_s / self.tokens_per_s


@dataclass(frozen=True)
class Expected:
    """What a profile predicts of an engine with these limits."""

    cost: StepCost
    limits: EngineLimits

    @property
    def kv_tokens(self) -> int:
        """Tokens that all KV blocks hold."""
        return self.limits.num_blocks * self.limits.block_size

    def decode_s(self, batch: float, kv_tokens: float) -> float:
        """Seconds of a decode step of so many sequences, between whole numbers linear."""
        sizes = np.arange(self.limits.max_num_seqs + 1)
        dense_s = np.interp(batch, sizes, self.cost.decode_s[: len(sizes)])
        return self._whole(float(dense_s + np.interp(batch, sizes, self.cost.kv_read_s) * kv_tokens))

    def _whole(self, gpu_s: float) -> float:
        host_s = self.cost.host_s
        return max(host_s, gpu_s) if self.cost.overlap else host_s + gpu_s

    def window_s(self, steps: float, batch: float, kv_tokens: float, prompt_tokens: float) -> float:
        """Seconds of so many steps that make `batch` tokens each and compute so many prompt tokens together."""
        budget = self.limits.max_num_batched_tokens
        full = min(steps, prompt_tokens / max(1.0, budget - batch))
        read_s = float(np.interp(batch, np.arange(self.limits.max_num_seqs + 1), self.cost.kv_read_s)) * kv_tokens
        mixed_s = self._whole(float(self.cost.mixed_s[budget]) + read_s)
        return (steps - full) * self.decode_s(batch, kv_tokens) + full * mixed_s

    def batch_at(self, requests_per_s: float, prompt: float, output: float) -> float:
        """Sequences that decode at a load of requests of mean lengths [tokens], the most there are if it grows."""
        most, batch = float(self.limits.max_num_seqs), 0.0
        for _ in range(_ROUNDS):
            # Where the mean batch is below 1, requests are alone.
            step_s = self.decode_s(max(1.0, batch), batch * (prompt + output / 2))
            batch = min(most, requests_per_s * output * step_s)
        return batch

    def window(self, before: ServerMetrics, after: ServerMetrics, at_s: float, seconds: float) -> Window | None:
        """Compare a window; None where the server was idle at one of its ends, or made no token."""
        told = ("running", "kv_share", "steps", "output_tokens", "prompt_tokens")
        if any(getattr(scrape, name) is None for scrape in (before, after) for name in told):
            return None
        steps, tokens = _grown(before, after, "steps"), _grown(before, after, "output_tokens")
        if not before.running or not after.running or steps <= 0 or tokens <= 0:
            return None
        batch = min(tokens / steps, float(self.limits.max_num_seqs))
        share = ((before.kv_share or 0.0) + (after.kv_share or 0.0)) / 2
        prompts = max(0.0, _grown(before, after, "prompt_tokens") - _grown(before, after, "cached_tokens"))
        predicted_s = self.window_s(steps, batch, share * self.kv_tokens, prompts)
        ended = _grown(before, after, "finished")
        predicted = predicted_share = None
        if ended >= _ENDED:
            prompt, output = _grown(before, after, "prompt_tokens") / ended, tokens / ended
            predicted = self.batch_at(ended / seconds, prompt, output)
            predicted_share = predicted * (prompt + output / 2) / self.kv_tokens
        return Window(
            at_s=at_s,
            seconds=seconds,
            steps=steps,
            tokens_per_s=tokens / seconds,
            predicted_tokens_per_s=tokens / predicted_s,
            batch=batch,
            predicted_batch=predicted,
            kv_share=share,
            predicted_kv_share=predicted_share,
        )


def _grown(before: ServerMetrics, after: ServerMetrics, name: str) -> float:
    return (getattr(after, name) or 0.0) - (getattr(before, name) or 0.0)


def drift(windows: Sequence[Window], tolerance: float) -> tuple[float | None, bool]:
    """Median ratio of the last `DECIDING` windows, None of fewer; and whether the profile has drifted."""
    if len(windows) < DECIDING:
        return None, False
    middle = float(np.median([window.ratio for window in windows[-DECIDING:]]))
    return middle, abs(math.log(middle)) > math.log1p(tolerance)

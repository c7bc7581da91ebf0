"""Times train steps of a model on this device: passes with gradients and without, and the optimizer.

One micro-batch of packed sequences at a time, random tokens, no parallelism: what one device computes. The logits are
made and differentiated a slice at a time, as frameworks with a fused loss do. Activations are kept, or computed again.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rollsim.calibration.engine_facts import cpu_facts, gpu_facts
from rollsim.calibration.engine_faults import EngineUnfit
from rollsim.calibration.torch_decoder import TorchDecoder, import_torch, load_weights, read_shape

# Tokens of a micro-batch, and sequences in it; the middle one is held out.
TOKENS = (256, 1_024, 4_096, 16_384)
SEQUENCES = (1, 4, 16)
HELD_OUT = 4
_LOGITS = 1_024
_OPTIMIZED = 1 << 28
_SIDES = (1_024, 4_096, 8_192)
_FEWEST, _REFERENCES = 2, 5
_PEAK_S = 0.5

Pass = str


@dataclass(frozen=True)
class Point:
    """A micro-batch: tokens in all and in each sequence, and whether activations are computed again."""

    tokens: int
    length: int
    recompute: bool


@dataclass(frozen=True)
class Timed:
    """Seconds of a point, one a run: forward and backward, and a pass without gradients."""

    point: Point
    gradients_s: list[float]
    forward_s: list[float]


class TrainTimer:
    """A model on the device.

    Parameters
    ----------
    model
        Folder with a config.json; weights that are not there are random.

    Raises
    ------
    EngineUnfit
        torch is not there, or the model is none that it knows.
    """

    def __init__(self, model: Path) -> None:
        self._torch = torch = import_torch()
        self.shape, self.name = read_shape(model), model.name
        self.on_gpu = bool(torch.cuda.is_available())
        self.device = "cuda" if self.on_gpu else "cpu"
        if not self.on_gpu:
            torch.set_num_threads(1)
        weights, _ = load_weights(model, self.shape, self.device, torch.bfloat16, 0)
        self.parameters = sum(weight.numel() for weight in weights.values())
        self._decoder = TorchDecoder(self.shape, weights, 1, 1)
        self._trained = list(weights.values())

    def gradients_s(self, point: Point) -> float:
        """Time of a forward and a backward pass [s]."""
        ids, lengths = self._batch(point)
        for weight in self._trained:
            weight.requires_grad_(True)
            weight.grad = None
        return self._timed(lambda: self._backward(ids, lengths, recompute=point.recompute))

    def forward_s(self, point: Point) -> float:
        """Time of a pass for log-probabilities [s]."""
        ids, lengths = self._batch(point)
        with self._torch.no_grad():
            return self._timed(lambda: self._logprobs(ids, lengths))

    def optimizer_s(self) -> tuple[float, int]:
        """Time of an AdamW step on fp32 weights [s] from bf16 gradients and back, and of how many parameters."""
        torch = self._torch
        count = min(self.parameters, _OPTIMIZED)
        gradient = torch.randn(count, device=self.device, dtype=torch.bfloat16)
        served = torch.zeros(count, device=self.device, dtype=torch.bfloat16)
        weight = torch.zeros(count, device=self.device, requires_grad=True)
        adam = torch.optim.AdamW([weight], fused=True)

        def step() -> None:
            weight.grad = gradient.float()
            adam.step()
            served.copy_(weight.detach())

        step()
        return statistics.median(self._timed(step) for _ in range(3)), count

    def peak_flops(self) -> float:
        """Fastest product of two square bf16 matrices that was seen here [FLOP/s]."""
        torch, best = self._torch, 0.0
        for side in _SIDES if self.on_gpu else _SIDES[:1]:
            left, right = (torch.randn(side, side, device=self.device, dtype=torch.bfloat16) for _ in range(2))
            began = time.perf_counter()
            while time.perf_counter() - began < _PEAK_S:
                best = max(best, 2.0 * side**3 / self._timed(lambda left=left, right=right: left @ right))
        return best

    def _batch(self, point: Point) -> tuple[Any, list[int]]:
        ids = self._torch.randint(0, self.shape.vocab, (point.tokens,), device=self.device)
        return ids, [point.length] * (point.tokens // point.length)

    def _backward(self, ids: Any, lengths: list[int], *, recompute: bool) -> None:
        torch = self._torch
        hidden = self._decoder.packed(ids, lengths, recompute=recompute)
        leaf = hidden.detach().requires_grad_(True)
        for at in range(0, len(ids), _LOGITS):
            logits = torch.nn.functional.linear(leaf[at : at + _LOGITS], self._decoder.head)
            torch.nn.functional.cross_entropy(logits.float(), ids[at : at + _LOGITS], reduction="sum").backward()
        hidden.backward(leaf.grad)

    def _logprobs(self, ids: Any, lengths: list[int]) -> None:
        torch = self._torch
        hidden = self._decoder.packed(ids, lengths, recompute=False)
        for at in range(0, len(ids), _LOGITS):
            logits = torch.nn.functional.linear(hidden[at : at + _LOGITS], self._decoder.head)
            torch.log_softmax(logits.float(), -1).gather(-1, ids[at : at + _LOGITS, None])

    def _timed(self, do: Callable[[], object]) -> float:
        """Time of the wall on a GPU, of the process on a CPU, where one thread computes."""
        clock = time.perf_counter if self.on_gpu else time.process_time
        self._synchronize()
        began = clock()
        do()
        self._synchronize()
        return clock() - began

    def _synchronize(self) -> None:
        if self.on_gpu:
            self._torch.cuda.synchronize()


def time_training(
    model: Path,
    *,
    minutes: float,
    progress: Callable[[float], None] = lambda _: None,
    timer: Callable[[Path], Any] = TrainTimer,
) -> dict[str, Any]:
    """Time what fits: micro-batches that grow as long as all of their kind fit the time and the memory.

    Returns
    -------
    dict
        As JSON: model, device, clock, peak, ``points``, optimizer, and the repeats of one point for the noise.

    Raises
    ------
    EngineUnfit
        torch or the model is not there, or not even the smallest micro-batches fit.
    """
    began = time.monotonic()
    device = timer(model)
    left = 60 * minutes
    reference = Point(TOKENS[0], TOKENS[0] // HELD_OUT, recompute=True)
    device.gradients_s(reference)
    noise = [device.gradients_s(reference) for _ in range(_REFERENCES)]
    timed: list[Timed] = []
    stopped = None
    for points in _grid():
        cost_s = max(noise) * points[0].tokens / reference.tokens * 2 * len(points) * _FEWEST
        if timed and time.monotonic() - began + cost_s > left:
            stopped = f"{points[0].tokens:,} tokens would take longer than the time that is left"
            break
        try:
            timed += _timed_round(device, points)
        except Exception as error:
            # torch tells of memory in several ways.
            if "memory" not in str(error).lower():
                raise
            stopped = f"{points[0].tokens:,} tokens do not fit the memory"
            break
        noise += [device.gradients_s(reference)]
        progress(min(0.9, (time.monotonic() - began) / left))
    if not timed:
        raise EngineUnfit(f"nothing could be timed: {stopped}")
    optimizer_s, count = device.optimizer_s()
    progress(1.0)
    return {
        "model": {
            "name": device.name,
            "parameters": device.parameters,
            "layers": device.shape.layers,
            "heads": device.shape.heads,
            "kv_heads": device.shape.kv_heads,
            "head_dim": device.shape.head_dim,
            "hidden": device.shape.hidden,
            "vocab": device.shape.vocab,
        },
        "device": gpu_facts() if device.on_gpu else cpu_facts(),
        "torch": str(import_torch().__version__),
        "clock": "wall" if device.on_gpu else "cpu",
        "peak_flops": device.peak_flops(),
        "points": [
            asdict(each.point) | {"gradients_s": each.gradients_s, "forward_s": each.forward_s} for each in timed
        ],
        "optimizer": {"seconds": optimizer_s, "parameters": count},
        "reference_s": noise,
        "stopped": stopped,
        "spent_s": round(time.monotonic() - began, 1),
    }


def _grid() -> Iterator[list[Point]]:
    for tokens in TOKENS:
        yield [Point(tokens, tokens // count, recompute) for count in SEQUENCES for recompute in (True, False)]


def _timed_round(device: Any, points: list[Point]) -> list[Timed]:
    """Each point once to warm up, then in turn, in random order."""
    found = {point: Timed(point, [], []) for point in points}
    for number in range(_FEWEST + 1):
        for point in random.Random(number).sample(points, len(points)):
            gradients_s, forward_s = device.gradients_s(point), device.forward_s(point)
            if number:
                found[point].gradients_s.append(gradients_s)
                found[point].forward_s.append(forward_s)
    return list(found.values())

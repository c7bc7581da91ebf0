"""The torch decoder as an engine: the simulator's scheduler says what a step holds, torch computes it.

The rules are vLLM's as the simulator has them, without a prefix cache, so that its steps are simulated ones by
construction; what is measured is what they cost here. A block is a request's own, and free when the scheduler frees it.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rollsim.calibration.batch import Request
from rollsim.calibration.engine_facts import cpu_facts, gpu_facts
from rollsim.calibration.engine_faults import EngineFailed, EngineUnfit
from rollsim.calibration.step_tap import TappedStep
from rollsim.calibration.torch_decoder import (
    Chunk,
    TorchDecoder,
    import_torch,
    load_weights,
    read_shape,
    weight_shapes,
)
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.stepped import Scheduled, Step
from rollsim.simulator.stepped_replica import SteppedReplica

_DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4}
_GPU = {"max_num_seqs": 256, "max_num_batched_tokens": 8_192, "max_model_len": 8_192, "gpu_memory_utilization": 0.85}
_CPU = {
    "max_num_seqs": 32,
    "max_num_batched_tokens": 1_024,
    "max_model_len": 2_048,
    "kv_cache_memory_bytes": 1 << 30,
}
_TAKEN = (*_GPU, "kv_cache_memory_bytes", "block_size", "num_gpu_blocks_override", "dtype", "enable_prefix_caching")
_BLOCK = 16


@dataclass
class _Life:
    request: Request
    ids: list[int]
    blocks: list[int] = field(default_factory=list)
    outputs: int = 0
    seen: bool = False


class TorchDriver:
    """See `rollsim.calibration.recorder.Driver`.

    Parameters
    ----------
    model
        Folder with a config.json; weights that are not there are random.
    options
        Limits under vLLM's names.
    seed
        Of random weights and sampling.

    Raises
    ------
    EngineUnfit
        torch is not there, or model or options are none that it takes.
    """

    def __init__(self, model: str, options: Mapping[str, Any], seed: int) -> None:
        self._torch = torch = import_torch()
        folder, self._seed = Path(model), seed
        if unknown := [name for name in options if name not in _TAKEN]:
            raise EngineUnfit(f"the torch backend takes no {', '.join(unknown)}; it takes {', '.join(_TAKEN)}")
        shape = read_shape(folder)
        on_gpu = bool(torch.cuda.is_available())
        self.version, self.build = str(torch.__version__), "cuda" if on_gpu else "cpu"
        if not on_gpu:
            # As with vLLM: one thread, whose time is that of the process.
            torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        given = {
            name: value for name, value in ((_GPU if on_gpu else _CPU) | dict(options)).items() if value is not None
        }
        self.dtype = str(given.get("dtype", "auto"))
        self.dtype = shape.dtype if self.dtype == "auto" else self.dtype
        if self.dtype not in _DTYPES:
            raise EngineUnfit(f"the torch backend computes in {', '.join(_DTYPES)}, and not in {self.dtype}")
        self._device = "cuda" if on_gpu else "cpu"
        weights, self.has_weights = load_weights(folder, shape, self._device, getattr(torch, self.dtype), seed)
        self.name, self._folder = folder.name, folder
        self.limits = self._limits(shape, given)
        try:
            self._decoder = TorchDecoder(shape, weights, self.limits.num_blocks, self.limits.block_size)
        except (RuntimeError, MemoryError) as error:
            raise EngineUnfit(f"{self.limits.num_blocks} KV blocks do not fit: {error}") from error
        self.temperature = 1.0
        self._sampler = torch.Generator(self._device).manual_seed(seed)
        self.reset()

    def _limits(self, shape: Any, given: Mapping[str, Any]) -> EngineLimits:
        size = given.get("block_size", _BLOCK)
        block_bytes = 2 * shape.layers * shape.kv_heads * shape.head_dim * _DTYPES[self.dtype] * size
        if (override := given.get("num_gpu_blocks_override")) is not None:
            blocks = override - 1
        elif (memory := given.get("kv_cache_memory_bytes")) is not None:
            blocks = memory // block_bytes
        else:
            free, total = self._torch.cuda.mem_get_info()
            blocks = int(free - (1 - given["gpu_memory_utilization"]) * total) // block_bytes
        longest = min(given["max_model_len"], shape.max_position)
        if blocks * size < longest:
            raise EngineUnfit(f"{max(0, blocks)} KV blocks of {size} tokens do not hold one sequence of {longest}")
        return EngineLimits(
            max_num_seqs=given["max_num_seqs"],
            max_num_batched_tokens=given["max_num_batched_tokens"],
            block_size=size,
            num_blocks=blocks,
            max_model_len=longest,
            prefix_caching=False,
        )

    def facts(self) -> dict[str, Any]:
        """What a measurement's manifest says of it."""
        shape, threads = self._decoder.shape, int(self._torch.get_num_threads())
        cpu = self.build == "cpu"
        return {
            "engine": {
                "name": "torch",
                "version": self.version,
                "build": self.build,
                "scheduling": "sync",
                "enforce_eager": True,
                "graph_sizes": [],
                "compute_threads": threads,
            },
            "model": {
                "name": self.name,
                "layers": shape.layers,
                "heads": shape.heads,
                "kv_heads": shape.kv_heads,
                "head_dim": shape.head_dim,
                "hidden": shape.hidden,
                "parameters": sum(weight.numel() for weight in self._decoder.weights.values()),
                "dtype": self.dtype,
                "kv_dtype": self.dtype,
                "weights": "as in its folder" if self.has_weights else "random",
            },
            "device": cpu_facts() if cpu else gpu_facts(),
            "clock": "cpu" if cpu and threads == 1 else "wall",
            "limits": asdict(self.limits),
        }

    @property
    def vocab(self) -> int:
        """How many tokens the model knows."""
        return self._decoder.shape.vocab

    @property
    def unfinished(self) -> bool:
        """Whether any request is left."""
        return bool(self._left)

    @property
    def draining(self) -> bool:
        """Nothing ends later than its step here."""
        return False

    def reset(self) -> None:
        """Forget everything."""
        self._scheduler = SteppedReplica(self.limits)
        self._lives: dict[str, _Life] = {}
        self._left: set[str] = set()
        self._free = list(range(self.limits.num_blocks))

    def add(self, request: Request, prompt_ids: list[int]) -> None:
        """Add a request."""
        self._scheduler.add(request.id, request.prompt_tokens, request.output_tokens, priority=request.priority)
        self._lives[request.id] = _Life(request, list(prompt_ids))
        self._left.add(request.id)

    def abort(self, id: str) -> None:
        """Abort a request at once."""
        self._scheduler.abort(id)
        self._left.discard(id)
        self._release(id)

    def output_ids(self, id: str) -> list[int]:
        """Tokens that a request has generated so far."""
        life = self._lives[id]
        return life.ids[len(life.ids) - life.outputs :]

    def preemptions(self, id: str) -> int:  # noqa: ARG002 - the recorder counts them step by step
        """Not told by request."""
        return 0

    def pause(self, *, clear_cache: bool) -> None:
        """Stop between two steps as for new weights, and go on; with the cache cleared all are prefilled again."""
        self._scheduler.update_weights(clear_cache)

    def reload_weights(self, model: str) -> None:
        """Load weights from a folder into the running engine; random ones are made anew."""
        shape = self._decoder.shape
        weights, _ = load_weights(Path(model), shape, self._device, getattr(self._torch, self.dtype), self._seed)
        for name in weight_shapes(shape):
            self._decoder.weights[name].copy_(weights[name])

    def sleep_and_wake(self) -> None:
        """Give the weights to the host, and take them back."""
        weights = self._decoder.weights
        away = {name: weight.cpu() for name, weight in weights.items()}
        for name, weight in away.items():
            weights[name].copy_(weight)
        self._synchronize()

    def step(self) -> TappedStep:
        """Make one step."""
        wall, cpu = time.perf_counter(), time.process_time()
        step = self._scheduler.step()
        if step is None:
            raise EngineFailed("there is nothing to do")
        first = self._placed(step)
        model_wall, model_cpu = time.perf_counter(), time.process_time()
        tokens = self._computed(step.scheduled)
        model_wall, model_cpu = time.perf_counter() - model_wall, time.process_time() - model_cpu
        self._delivered(step, tokens)
        took, used = time.perf_counter() - wall, time.process_time() - cpu
        return TappedStep(
            wall_ms=took * 1e3,
            cpu_ms=used * 1e3,
            counts=self._counts(step),
            scheduled={entry.id: entry.tokens for entry in step.scheduled},
            cached=first,
            preempted=tuple(sorted(step.preempted)),
            outputs=step.outputs,
            finished=dict.fromkeys(step.finished, "length"),
            host_wall_ms=(took - model_wall) * 1e3,
            host_cpu_ms=max(0.0, used - model_cpu) * 1e3,
        )

    def _placed(self, step: Step) -> dict[str, int]:
        """Free and take blocks as the step says; tokens found cached, by request admitted for the first time."""
        for id in step.preempted:
            self._release(id)
        first = {}
        for entry in step.scheduled:
            life = self._lives[entry.id]
            if not life.seen:
                life.seen = True
                first[entry.id] = entry.computed
            wanted = -(-(entry.computed + entry.tokens) // self.limits.block_size)
            while len(life.blocks) < wanted:
                life.blocks.append(self._free.pop())
        return first

    def _release(self, id: str) -> None:
        self._free += self._lives[id].blocks
        self._lives[id].blocks = []

    def _computed(self, scheduled: Sequence[Scheduled]) -> list[int]:
        """Run the model; the next token of each request."""
        chunks = []
        for entry in scheduled:
            life = self._lives[entry.id]
            chunks.append(Chunk(life.ids[entry.computed : entry.computed + entry.tokens], entry.computed, life.blocks))
        logits = self._decoder.step(chunks)
        if self.temperature == 0:
            return logits.argmax(-1).tolist()
        shares = self._torch.softmax(logits.float() / self.temperature, -1)
        return self._torch.multinomial(shares, 1, generator=self._sampler)[:, 0].tolist()

    def _delivered(self, step: Step, tokens: list[int]) -> None:
        for entry, token in zip(step.scheduled, tokens, strict=True):
            if entry.id in step.outputs:
                life = self._lives[entry.id]
                life.ids.append(token)
                life.outputs += 1
        for id in step.finished:
            self._left.discard(id)
            self._release(id)

    def _synchronize(self) -> None:
        if self.build == "cuda":
            self._torch.cuda.synchronize()

    def _counts(self, step: Step) -> dict[str, int]:
        context = [entry for entry in step.scheduled if not entry.had_output]
        generating = [entry for entry in step.scheduled if entry.had_output]
        return {
            "n_ctx_requests": len(context),
            "prefill_tokens": sum(entry.tokens for entry in context),
            "n_gen_requests": len(generating),
            "gen_tokens": sum(entry.tokens for entry in generating),
            "kv_tokens": sum(self._lives[id].request.prompt_tokens + made for id, made in step.outputs.items()),
            "kv_batch": sum(entry.computed + entry.tokens for entry in step.scheduled),
            "kv_held": step.kv_held,
            "blocks_peak": step.blocks_peak,
            "blocks_used": step.blocks_used,
            "running": step.running,
            "waiting": step.waiting,
            "draft_tokens": 0,
            "accepted_tokens": 0,
        }

"""An engine for tests of measuring: the compiled replica in the place of vLLM, with step times of its own."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rollsim.calibration.batch import Batch, Request
from rollsim.calibration.recorder import record
from rollsim.calibration.step_tap import TappedStep
from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.stepped import Scheduled
from rollsim.simulator.stepped_replica import SteppedReplica

LIMITS = EngineLimits(max_num_seqs=8, max_num_batched_tokens=128, block_size=16, num_blocks=400, max_model_len=256)


class FakeDriver:
    """Steps a replica; each takes what `cost` says, or 1 ms and a little per token."""

    vocab = 1_000

    def __init__(self, limits: EngineLimits = LIMITS, cost: StepCost | None = None) -> None:
        self.limits = limits
        self.cost = cost or StepCost.affine(
            limits.max_num_batched_tokens, limits.max_num_seqs, base_s=1e-3, token_s=1e-5
        )
        self.reset()

    def reset(self) -> None:
        self._replica = SteppedReplica(self.limits, self.cost)
        self._requests: dict[str, tuple[Request, list[int]]] = {}
        self._outputs: dict[str, int] = {}
        self._left: set[str] = set()
        self._admitted: set[str] = set()

    @property
    def unfinished(self) -> bool:
        return bool(self._left)

    def output_ids(self, id: str) -> list[int]:
        """No two requests generate alike."""
        own = list(self._requests).index(id)
        return [10_000 * (own + 1) + i for i in range(self._outputs[id])]

    draining = False

    def add(self, request: Request, prompt_ids: list[int]) -> None:
        parent, shared = None, 0
        for id, (_, ids) in self._requests.items():
            alike = _alike(prompt_ids, ids + self.output_ids(id))
            if alike > shared:
                parent, shared = id, alike
        self._replica.add(
            request.id,
            request.prompt_tokens,
            request.output_tokens,
            priority=request.priority,
            parent=parent,
            shared_tokens=shared,
        )
        self._requests[request.id] = request, prompt_ids
        self._outputs[request.id] = 0
        self._left.add(request.id)

    def abort(self, id: str) -> None:
        self._replica.abort(id)
        self._left.discard(id)

    def step(self) -> TappedStep:
        before_s = self._replica.now_s
        step = self._replica.step()
        assert step is not None
        took_ms = 1e3 * (self._replica.now_s - before_s)
        self._outputs |= step.outputs
        self._left -= set(step.finished)
        first = {entry.id: entry.computed for entry in step.scheduled if entry.id not in self._admitted}
        self._admitted |= first.keys()
        return TappedStep(
            wall_ms=took_ms,
            cpu_ms=took_ms,
            counts=self._counts(step.scheduled, step.outputs)
            | {
                "kv_held": step.kv_held,
                "blocks_peak": step.blocks_peak,
                "blocks_used": step.blocks_used,
                "running": step.running,
                "waiting": step.waiting,
            },
            scheduled={entry.id: entry.tokens for entry in step.scheduled},
            cached=first,
            preempted=tuple(sorted(step.preempted)),
            outputs=step.outputs,
            finished=dict.fromkeys(step.finished, "length"),
        )

    def _counts(self, scheduled: list[Scheduled], outputs: Mapping[str, int]) -> dict[str, int]:
        context = [entry for entry in scheduled if not entry.had_output]
        generating = [entry for entry in scheduled if entry.had_output]
        return {
            "n_ctx_requests": len(context),
            "prefill_tokens": sum(entry.tokens for entry in context),
            "n_gen_requests": len(generating),
            "gen_tokens": sum(entry.tokens for entry in generating),
            "kv_tokens": sum(self._requests[id][0].prompt_tokens + tokens for id, tokens in outputs.items()),
            "kv_batch": sum(entry.computed + entry.tokens for entry in scheduled),
            "draft_tokens": 0,
            "accepted_tokens": 0,
        }


def _alike(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def config(limits: EngineLimits) -> dict[str, Any]:
    return {
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "block_size": limits.block_size,
        "num_gpu_blocks": limits.num_blocks,
        "max_model_len": limits.max_model_len,
        "long_prefill_token_threshold": limits.long_prefill_token_threshold,
        "watermark_blocks": limits.watermark_blocks,
        "prefix_caching": limits.prefix_caching,
        "chunked_prefill": limits.chunked_prefill,
        "policy": limits.policy,
    }


class FakeEngine:
    """What `measure` opens. `fail` makes a run of a batch end as it says; `opened` counts engines."""

    version = "0.32.0"
    opened = 0
    recorded: list[str] = []  # noqa: RUF012 - shared on purpose
    fail: dict[str, BaseException] = {}  # noqa: RUF012 - shared on purpose

    def __init__(self, model: str, options: Mapping[str, Any], seed: int, log: Path, backend: str = "vllm") -> None:
        assert backend == "vllm"
        type(self).opened += 1
        log.touch()
        self._seed = seed
        self._limits = replace(
            LIMITS,
            num_blocks=options.get("num_gpu_blocks_override", LIMITS.num_blocks + 1) - 1,
            max_model_len=options.get("max_model_len", LIMITS.max_model_len),
            max_num_batched_tokens=options.get("max_num_batched_tokens", LIMITS.max_num_batched_tokens),
            prefix_caching=options.get("enable_prefix_caching", True),
        )
        self.facts = {
            "engine": {
                "name": "vllm",
                "version": self.version,
                "build": "cpu",
                "scheduling": "sync",
                "enforce_eager": True,
                "graph_sizes": [],
                "compute_threads": 1,
            },
            "model": {"name": Path(model).name, "layers": 1, "dtype": "bfloat16", "parameters": None},
            "device": {"kind": "cpu", "name": "none"},
            "clock": "cpu",
            "limits": asdict(self._limits),
        }

    def record(self, batch: Batch) -> dict[str, Any]:
        if batch.name in self.fail:
            raise self.fail[batch.name]
        self.recorded.append(batch.name)
        return record(batch, FakeDriver(self._limits), config(self._limits), self._seed)

    def time(self, what: str, **arguments: Any) -> dict[str, Any]:
        if what in self.fail:
            raise self.fail[what]
        return {"took_s": 0.001}

    def close(self) -> None:
        pass

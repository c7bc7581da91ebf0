"""Runs a batch on an engine, step by step, and writes down what it did: a recording as `rollsim replay` reads it."""

import os
import random
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from rollsim.calibration.batch import Batch, Request
from rollsim.calibration.step_tap import TappedStep
from rollsim.simulator.recording import ASYNC_COLUMNS, SYNC_COLUMNS

_LIMITS = (
    "max_num_seqs", "max_num_batched_tokens", "block_size", "max_model_len", "long_prefill_token_threshold",
    "watermark_blocks", "prefix_caching", "chunked_prefill", "policy", "async_scheduling",
)  # fmt: skip
# Tokens below it are often special ones.
_FIRST_TOKEN = 16


class Driver(Protocol):
    """What an engine must offer to be recorded; ``facts`` is what a measurement's manifest says of it."""

    def facts(self) -> dict[str, Any]:
        """Engine, model, device, clock and limits."""
        ...

    @property
    def vocab(self) -> int:
        """How many tokens the model knows."""
        ...

    @property
    def unfinished(self) -> bool:
        """Whether any request is left."""
        ...

    @property
    def draining(self) -> bool:
        """Whether calls are left that only pass on what has ended."""
        ...

    def add(self, request: Request, prompt_ids: list[int]) -> None:
        """Add a request."""
        ...

    def abort(self, id: str) -> None:
        """Abort a request at once."""
        ...

    def step(self) -> TappedStep:
        """Make one step."""
        ...

    def output_ids(self, id: str) -> list[int]:
        """Tokens that a request has generated so far."""
        ...

    def reset(self) -> None:
        """Forget everything."""
        ...


@dataclass
class _Life:
    """What became of one request."""

    request: Request
    prompt_ids: list[int]
    added_before_step: int
    partial: int | None
    first_token_step: int | None = None
    finish_step: int | None = None
    first_scheduled_step: int | None = None
    last_scheduled_step: int | None = None
    reason: str | None = None
    preemptions: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def planned(self) -> dict[str, Any]:
        """As a recording lists its requests."""
        resumed = {} if self.partial is None else {"resume_partial": self.partial}
        return asdict(self.request) | resumed

    def result(self) -> dict[str, Any]:
        """As a recording tells what became of it; the cached tokens are an extra."""
        return {
            "added_before_step": self.added_before_step,
            "first_token_step": self.first_token_step,
            "finish_step": self.finish_step,
            "finish_reason": self.reason,
            "num_preemptions": self.preemptions,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            # As an asynchronous recording calls it.
            "first": self.first_scheduled_step,
            "last": self.last_scheduled_step,
            "finish": self.finish_step,
            "reason": self.reason,
            "preemptions": self.preemptions,
        }


@dataclass
class _Run:
    batch: Batch
    driver: Driver
    seed: int
    lives: dict[str, _Life] = field(default_factory=dict)
    steps: list[TappedStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._waiting = sorted(self.batch.requests, key=lambda request: request.before_step)
        self._aborts = [request for request in self.batch.requests if request.abort_after_step is not None]
        self._prompts: dict[str, list[int]] = {}

    def all_steps(self) -> None:
        """Make every step: aborts due, then additions due, each in the order of the batch."""
        while True:
            k = len(self.steps)
            self._abort(k)
            self._add(k, until=k)
            if not self.driver.unfinished:
                if not self._waiting:
                    break
                # An idle engine makes no step: the next additions are made at once.
                self._add(k, until=self._waiting[0].before_step)
            self._note(k, self.driver.step())
        while self.driver.draining:
            self._note(len(self.steps), self.driver.step())

    def _abort(self, k: int) -> None:
        for request in self._aborts:
            life = self.lives.get(request.id)
            if request.abort_after_step == k - 1 and life is not None and life.reason is None:
                self.driver.abort(request.id)
                life.reason, life.finish_step = "abort", k - 1

    def _add(self, k: int, until: int) -> None:
        while self._waiting and self._waiting[0].before_step <= until:
            request = self._waiting.pop(0)
            partial: list[int] | None = None
            if request.resume_of is None:
                prompt_ids = self._prompt(request)
            else:
                before = self.lives[request.resume_of]
                partial = self.driver.output_ids(request.resume_of)
                prompt_ids = before.prompt_ids + partial
                left = max(1, before.request.output_tokens - len(partial))
                request = replace(request, prompt_tokens=len(prompt_ids), output_tokens=left)
            self.driver.add(request, prompt_ids)
            self.lives[request.id] = _Life(request, prompt_ids, k, None if partial is None else len(partial))

    def _prompt(self, request: Request) -> list[int]:
        """Random tokens, of its group or its own; the same in every repeat."""
        key = request.group or f"alone {request.id}"
        if key not in self._prompts:
            rng = random.Random(f"{self.seed} {self.batch.name} {key}")
            last = self.driver.vocab - 1
            self._prompts[key] = [rng.randint(_FIRST_TOKEN, last) for _ in range(request.prompt_tokens)]
        return self._prompts[key]

    def _note(self, k: int, step: TappedStep) -> None:
        self.steps.append(step)
        for id in step.scheduled:
            life = self.lives[id]
            life.last_scheduled_step = k
            if life.first_scheduled_step is None:
                life.first_scheduled_step = k
        for id, tokens in step.cached.items():
            self.lives[id].cached_tokens = tokens
        for id in step.preempted:
            self.lives[id].preemptions += 1
        for id, tokens in step.outputs.items():
            life = self.lives[id]
            life.output_tokens = tokens
            if life.first_token_step is None:
                life.first_token_step = k
        for id, reason in step.finished.items():
            self.lives[id].reason, self.lives[id].finish_step = reason, k

    @property
    def columns(self) -> tuple[str, ...]:
        """Of its rows: those that its steps tell."""
        told = self.steps[0].counts if self.steps else {}
        return ASYNC_COLUMNS if "n_requests" in told else SYNC_COLUMNS

    def rows(self) -> list[list[int]]:
        """One row of counters per step, in the order of the columns."""
        rows, preempted = [], 0
        for step in self.steps:
            preempted += len(step.preempted)
            counts = {**step.counts, "preempted_total": preempted}
            rows.append([counts[name] for name in self.columns])
        return rows


def recording_config(facts: Mapping[str, Any], temperature: float) -> dict[str, Any]:
    """Return the limits of an engine in the words of a recording."""
    limits = dict(facts["limits"])
    return {
        f"{facts['engine']['name']}_version": facts["engine"]["version"],
        "model": facts["model"]["name"],
        "sampling": f"temperature {temperature:g}",
        "num_gpu_blocks": limits.pop("num_blocks"),
        "long_prefill_token_threshold_adaptive": limits.pop("long_prefill_adaptive"),
        **{name: limits[name] for name in _LIMITS},
        **facts["engine"].get("scheduler", {}),
    }


def record(batch: Batch, driver: Driver, config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Run a batch on an engine that holds nothing else.

    Parameters
    ----------
    batch
        What to run.
    driver
        The engine; it is emptied first.
    config
        Limits of the engine in the words of a recording.
    seed
        Of the prompts.

    Returns
    -------
    dict
        The recording, as JSON, with one entry in ``repeats``.
    """
    driver.reset()
    load, began_unix_s = os.getloadavg()[0], time.time()
    run = _Run(batch, driver, seed)
    run.all_steps()
    wall_ms = [round(step.wall_ms, 4) for step in run.steps]
    cpu_ms = [round(step.cpu_ms, 4) for step in run.steps]
    rows = run.rows()
    repeat = {
        "wall_ms": wall_ms,
        "cpu_ms": cpu_ms,
        "host_wall_ms": [None if step.host_wall_ms is None else round(step.host_wall_ms, 4) for step in run.steps],
        "host_cpu_ms": [None if step.host_cpu_ms is None else round(step.host_cpu_ms, 4) for step in run.steps],
        "load": round(load, 2),
        "began_unix_s": round(began_unix_s, 3),
    }
    document = {
        "case": batch.name,
        "what": batch.purpose,
        "purpose": batch.purpose,
        "role": batch.role,
        "config": dict(config),
        "steps": len(rows),
        "preemptions": rows[-1][run.columns.index("preempted_total")],
        "requests": [run.lives[request.id].planned() for request in batch.requests],
        "columns": list(run.columns),
        "rows": rows,
        "prefill_chunks": [{id: n for id, n in step.scheduled.items() if n != 1} for step in run.steps],
        "preempted": [list(step.preempted) for step in run.steps],
        "result": {id: life.result() for id, life in run.lives.items()},
        "wall_ms": wall_ms,
        "cpu_ms": cpu_ms,
        "repeats": [repeat],
    }
    if document["preemptions"] and config["prefix_caching"]:
        # Siblings that generate alike may find each other's blocks when they are readmitted.
        grouped = [request.id for request in batch.requests if request.group is not None]
        document["output_ids"] = {id: driver.output_ids(id) for id in grouped}
    return document

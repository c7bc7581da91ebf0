"""Reads what a vLLM scheduler did in each step, without changing it.

vLLM's own statistics show the state after a step, count a readmitted request as decoding and come late with
preemptions, so the scheduler itself is looked at: once when it has made a batch, once when the step is over.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from rollsim.calibration.engine_faults import EngineMoved

KNOWN_VERSION = "0.32.0"


@contextmanager
def internals(version: str) -> Iterator[None]:
    """Turn an attribute that this version of vLLM does not have into a fault that names it."""
    try:
        yield
    except AttributeError as error:
        where = f"{type(error.obj).__name__}.{error.name}" if error.name else str(error)
        raise EngineMoved(
            f"vLLM {version} has no {where}, which is read here as in vLLM {KNOWN_VERSION}; install that version"
        ) from error


@dataclass(frozen=True)
class TappedStep:
    """One engine step.

    Attributes
    ----------
    wall_ms, cpu_ms
        How long it took, and how much time of all its threads [ms].
    host_wall_ms, host_cpu_ms
        What of that was spent outside the model: scheduling, bookkeeping, outputs. None if that is not known.
    counts
        The columns of a recording, except preemptions so far.
    scheduled
        Tokens computed, by request, in the order of scheduling.
    cached
        Tokens found in the prefix cache, by request admitted for the first time.
    preempted
        Requests preempted since the step before.
    outputs
        Tokens generated so far, by request that got any in this step.
    finished
        Why it ended, by request that did.
    """

    wall_ms: float
    cpu_ms: float
    counts: Mapping[str, int]
    scheduled: Mapping[str, int]
    cached: Mapping[str, int]
    preempted: tuple[str, ...]
    outputs: Mapping[str, int]
    finished: Mapping[str, str]
    host_wall_ms: float | None = None
    host_cpu_ms: float | None = None


def _clocks_ms() -> tuple[float, float]:
    """Time of the wall, and of all threads of this process [ms]."""
    return time.perf_counter() * 1e3, time.process_time() * 1e3


@dataclass(frozen=True)
class _Scheduled:
    request: Any
    tokens: int
    outputs_before: int
    computed_before: int
    drafts: int


class StepTap:
    """Looks into one scheduler. Ids are those under which requests were added, not the engine's own.

    Parameters
    ----------
    scheduler
        vLLM's ``v1.core.sched.scheduler.Scheduler``.
    version
        Version of that vLLM, for faults.
    """

    def __init__(self, scheduler: Any, version: str) -> None:
        self._scheduler = scheduler
        self._version = version
        self._names: dict[str, str] = {}
        self._seen: set[str] = set()
        self._batch: dict[str, _Scheduled] = {}
        self._preempted: tuple[str, ...] = ()
        self._blocks_peak = 0
        self._model_began = self._model_took = (0.0, 0.0)
        with self.internals():
            self._pool = scheduler.kv_cache_manager.block_pool
            self._blocks = self._pool.num_gpu_blocks - 1
            self._schedule, self._update = scheduler.schedule, scheduler.update_from_output
        scheduler.schedule, scheduler.update_from_output = self._tapped_schedule, self._tapped_update

    def internals(self) -> AbstractContextManager[None]:
        """Turn a missing attribute into a fault that names it."""
        return internals(self._version)

    def name(self, engine_id: str, id: str) -> None:
        """Tell under which id a request was added."""
        self._names[engine_id] = id

    def drop(self, id: str) -> None:
        """A request was aborted."""

    def begin(self) -> None:
        """A step begins."""
        self._model_began = self._model_took = (0.0, 0.0)

    def forget(self) -> None:
        """Forget all requests."""
        self._names.clear()
        self._seen.clear()

    def request(self, engine_id: str) -> Any:
        """Return the scheduler's own record of a request that has not ended."""
        with self.internals():
            return self._scheduler.requests[engine_id]

    def _tapped_schedule(self, *args: Any, **kwargs: Any) -> Any:
        made = self._schedule(*args, **kwargs)
        with self.internals():
            requests, drafted = self._scheduler.requests, made.scheduled_spec_decode_tokens
            self._batch = {}
            for engine_id, tokens in made.num_scheduled_tokens.items():
                request = requests[engine_id]
                self._batch[engine_id] = _Scheduled(
                    request,
                    tokens,
                    request.num_output_tokens,
                    request.num_computed_tokens - tokens,
                    len(drafted.get(engine_id, ())),
                )
            self._preempted = tuple(made.preempted_req_ids or ())
            self._blocks_peak = self._used()
        self._model_began = _clocks_ms()
        return made

    def _tapped_update(self, *args: Any, **kwargs: Any) -> Any:
        wall, cpu = _clocks_ms()
        self._model_took = wall - self._model_began[0], cpu - self._model_began[1]
        return self._update(*args, **kwargs)

    def _used(self) -> int:
        return self._blocks - self._pool.get_num_free_blocks()

    def _host_ms(self, wall_ms: float, cpu_ms: float) -> tuple[float, float]:
        """What of a step was not between scheduling and the update."""
        return max(0.0, wall_ms - self._model_took[0]), max(0.0, cpu_ms - self._model_took[1])

    def step(self, wall_ms: float, cpu_ms: float) -> TappedStep:
        """Return what the step that has just been made did."""
        with self.internals():
            return self._step(wall_ms, cpu_ms)

    def _step(self, wall_ms: float, cpu_ms: float) -> TappedStep:
        scheduled = {self._names[engine_id]: entry for engine_id, entry in self._batch.items()}
        yielded = {
            id: entry.request
            for id, entry in scheduled.items()
            if entry.request.num_output_tokens > entry.outputs_before
        }
        context = [entry for entry in scheduled.values() if entry.outputs_before == 0]
        running, waiting = self._scheduler.get_request_counts()
        tokens = sum(entry.tokens for entry in scheduled.values())
        context_tokens = sum(entry.tokens for entry in context)
        cached = {id: entry.computed_before for id, entry in scheduled.items() if id not in self._seen}
        self._seen |= cached.keys()
        host_wall_ms, host_cpu_ms = self._host_ms(wall_ms, cpu_ms)
        return TappedStep(
            wall_ms=wall_ms,
            cpu_ms=cpu_ms,
            host_wall_ms=host_wall_ms,
            host_cpu_ms=host_cpu_ms,
            counts={
                "n_ctx_requests": len(context),
                "prefill_tokens": context_tokens,
                "n_gen_requests": len(scheduled) - len(context),
                "gen_tokens": tokens - context_tokens,
                "kv_tokens": sum(request.num_tokens for request in yielded.values()),
                "kv_batch": sum(entry.request.num_computed_tokens for entry in scheduled.values()),
                "kv_held": sum(request.num_computed_tokens for request in self._scheduler.running),
                "blocks_peak": self._blocks_peak,
                "blocks_used": self._used(),
                "running": running,
                "waiting": waiting,
                "draft_tokens": sum(entry.drafts for entry in scheduled.values()),
                # Of each request that yields tokens the last one is its own, those before it are accepted drafts.
                "accepted_tokens": sum(
                    request.num_output_tokens - scheduled[id].outputs_before - 1 for id, request in yielded.items()
                ),
            },
            scheduled={id: entry.tokens for id, entry in scheduled.items()},
            cached=cached,
            preempted=tuple(sorted(self._names[engine_id] for engine_id in self._preempted)),
            outputs={id: request.num_output_tokens for id, request in yielded.items()},
            finished={
                id: str(request.get_finished_reason()) for id, request in yielded.items() if request.is_finished()
            },
        )

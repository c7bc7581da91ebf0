"""Reads what vLLM's asynchronous scheduler did in each call: it makes a batch, and takes in the one made before."""

from collections.abc import Mapping
from typing import Any

from rollsim.calibration.step_tap import StepTap, TappedStep


class AsyncStepTap(StepTap):
    """See `StepTap`; counts are the columns of an asynchronous recording."""

    def __init__(self, scheduler: Any, version: str) -> None:
        super().__init__(scheduler, version)
        self._live: dict[str, Any] = {}
        self._told: dict[str, int] = {}
        self._after_schedule: Mapping[str, int] = {}

    def name(self, engine_id: str, id: str) -> None:
        """Tell under which id a request was added."""
        super().name(engine_id, id)
        self._live[id], self._told[id] = self.request(engine_id), 0

    def drop(self, id: str) -> None:
        """A request was aborted: what its last batch brings is nobody's."""
        self._live.pop(id, None)

    def forget(self) -> None:
        """Forget all requests."""
        super().forget()
        self._live.clear()
        self._told.clear()

    def begin(self) -> None:
        """A call begins; it may schedule nothing."""
        self._batch, self._preempted = {}, ()
        self._after_schedule = self._state("schedule")
        super().begin()

    def _tapped_schedule(self, *args: Any, **kwargs: Any) -> Any:
        made = super()._tapped_schedule(*args, **kwargs)
        with self.internals():
            self._after_schedule = self._state("schedule")
        return made

    def _state(self, after: str) -> dict[str, int]:
        running, waiting = self._scheduler.get_request_counts()
        counts = {"blocks": self._used(), "running": running, "waiting": waiting}
        return {f"{name}_after_{after}": count for name, count in counts.items()}

    def _step(self, wall_ms: float, cpu_ms: float) -> TappedStep:
        scheduled = {self._names[engine_id]: entry for engine_id, entry in self._batch.items()}
        cached = {id: entry.computed_before for id, entry in scheduled.items() if id not in self._seen}
        self._seen |= cached.keys()
        outputs = {
            id: request.num_output_tokens
            for id, request in self._live.items()
            if request.num_output_tokens > self._told[id]
        }
        self._told |= outputs
        finished = {id: str(self._live[id].get_finished_reason()) for id in outputs if self._live[id].is_finished()}
        for id in finished:
            del self._live[id]
        host_wall_ms, host_cpu_ms = self._host_ms(wall_ms, cpu_ms)
        return TappedStep(
            wall_ms=wall_ms,
            cpu_ms=cpu_ms,
            host_wall_ms=host_wall_ms,
            host_cpu_ms=host_cpu_ms,
            counts={
                "n_requests": len(scheduled),
                "tokens": sum(entry.tokens for entry in scheduled.values()),
                **self._after_schedule,
                **self._state("update"),
            },
            scheduled={id: entry.tokens for id, entry in scheduled.items()},
            cached=cached,
            preempted=tuple(sorted(self._names[engine_id] for engine_id in self._preempted)),
            outputs=outputs,
            finished=finished,
        )

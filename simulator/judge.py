"""An engine against a recording: both must do the same in every step.

Equality is the test, not closeness: the scheduler is deterministic, and one request preempted differently sends the two
on different ways.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollsim.simulator.recorded_run import RecordedRun
from rollsim.simulator.recording import Recording
from rollsim.simulator.stepped import Step, SteppedEngine

# vLLM's asynchronous loop makes two more calls after the last request has ended: they pass on what was finished and
# drain the empty batches. An engine without a worker process has no such calls, so they are added here.
ASYNC_FLUSH_CALLS = 2

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class StepDifference:
    """The first step that differs; each pair is (recorded, simulated), None where a side has nothing.

    Attributes
    ----------
    step
        Step from 0.
    columns
        Columns that differ.
    scheduled
        Scheduled tokens of the requests for which they differ. A recording names only those that are not 1, so None on
        its side may also stand for 1.
    preempted
        Requests that only one side preempted: (only recorded, only simulated).
    """

    step: int
    columns: Mapping[str, Pair]
    scheduled: Mapping[str, Pair]
    preempted: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class RequestDifference:
    """A request whose result differs: (recorded, simulated) by field."""

    id: str
    fields: Mapping[str, Pair]


@dataclass(frozen=True)
class Comparison:
    """Outcome of replaying one recording.

    Attributes
    ----------
    steps, preemptions
        Recorded, all of them.
    equal_steps
        Steps from the start that are equal.
    difference
        The first step that differs, if any.
    requests
        Requests whose results differ; found only if all steps are equal.
    """

    name: str
    is_async: bool
    steps: int
    equal_steps: int
    preemptions: int
    difference: StepDifference | None
    requests: tuple[RequestDifference, ...]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return self.difference is None and not self.requests


def replay_recording(recording: Recording, engine: SteppedEngine) -> Comparison:
    """Drive an engine through a recorded workload and compare every step, then every request.

    Parameters
    ----------
    recording
        What a real engine did. Acceptances of drafts are inputs of the run.
    engine
        A fresh engine with the limits of the recording.

    Raises
    ------
    BadInput
        A request can never fit the engine.
    """
    run = RecordedRun(recording, engine)
    difference = None
    k = 0
    while difference is None:
        step = run.step(k)
        if step is None:
            break
        difference = _compare(run, k, step)
        k += 1
    else:
        k -= 1
    if difference is None:
        k, difference = _compare_end(run, k)
    requests = ()
    if difference is None:
        requests = tuple(_compare_requests(run))
    return Comparison(
        name=recording.name,
        is_async=recording.is_async,
        steps=len(recording.rows),
        equal_steps=k,
        preemptions=recording.preemptions,
        difference=difference,
        requests=requests,
    )


def _compare(run: RecordedRun, k: int, step: Step) -> StepDifference | None:
    recording = run.recording
    tokens = {scheduled.id: scheduled.tokens for scheduled in step.scheduled}
    if k >= len(recording.rows):
        columns = {name: (None, value) for name, value in run.row(k, step).items()}
        return StepDifference(
            k, columns, {id: (None, count) for id, count in tokens.items()}, ((), tuple(sorted(step.preempted)))
        )
    recorded = dict(zip(recording.columns, recording.rows[k], strict=True))
    simulated = run.row(k, step)
    columns = {name: (recorded[name], simulated[name]) for name in recorded if recorded[name] != simulated[name]}
    chunks = recording.chunks[k]
    scheduled = {
        id: (chunks.get(id), tokens.get(id))
        for id in sorted(chunks.keys() | tokens.keys())
        if chunks.get(id, 1 if id in tokens else None) != tokens.get(id)
    }
    ours, theirs = frozenset(step.preempted), recording.preempted[k]
    preempted = (tuple(sorted(theirs - ours)), tuple(sorted(ours - theirs)))
    if columns or scheduled or ours != theirs:
        return StepDifference(k, columns, scheduled, preempted)
    return None


def _compare_end(run: RecordedRun, k: int) -> tuple[int, StepDifference | None]:
    """Compare what was recorded after the engine became idle for good; return steps that are equal."""
    recording = run.recording
    flush = dict.fromkeys(recording.columns, 0) | {"preempted_total": run.preempted_total}
    flush_calls = ASYNC_FLUSH_CALLS if recording.is_async else 0
    while k < len(recording.rows):
        recorded = dict(zip(recording.columns, recording.rows[k], strict=True))
        if flush_calls == 0 or recorded != flush:
            return k, StepDifference(
                k,
                {name: (value, None) for name, value in recorded.items()},
                {id: (tokens, None) for id, tokens in recording.chunks[k].items()},
                (tuple(sorted(recording.preempted[k])), ()),
            )
        flush_calls -= 1
        k += 1
    return k, None


def _compare_requests(run: RecordedRun) -> list[RequestDifference]:
    differences = []
    for id, recorded in run.recording.results.items():
        simulated = run.result(id)
        fields = {name: (recorded.get(name), value) for name, value in simulated.items() if recorded.get(name) != value}
        if fields:
            differences.append(RequestDifference(id, fields))
    return differences

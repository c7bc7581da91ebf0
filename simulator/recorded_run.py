"""A recorded workload, given to an engine step by step."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rollsim.simulator.recording import RecordedRequest, Recording, Speculation
from rollsim.simulator.stepped import Step, SteppedEngine


@dataclass
class _Seen:
    """What the replay has seen of one request."""

    recorded: RecordedRequest
    added_before_step: int
    first_scheduled_step: int | None = None
    last_scheduled_step: int | None = None
    first_token_step: int | None = None
    finish_step: int | None = None
    reason: str | None = None
    preemptions: int = 0
    output_tokens: int = 0

    def result(self, is_async: bool) -> dict[str, Any]:
        """Tell its result in the fields of a recording."""
        if is_async:
            return {
                "first": self.first_scheduled_step,
                "last": self.last_scheduled_step,
                "finish": self.finish_step,
                "reason": self.reason,
                "preemptions": self.preemptions,
            }
        return {
            "added_before_step": self.added_before_step,
            "first_token_step": self.first_token_step,
            "finish_step": self.finish_step,
            "finish_reason": self.reason,
            "num_preemptions": self.preemptions,
            "output_tokens": self.output_tokens,
        }


@dataclass
class RecordedRun:
    """Drives an engine through a recorded workload, and tells what it did in the words of the recording.

    Between two steps come the aborts that are due, then weight updates, then additions, each in the order of the
    recording. Acceptances of drafts are inputs.

    Attributes
    ----------
    preempted_total
        Preemptions so far; those of a weight update count with the next step.
    """

    recording: Recording
    engine: SteppedEngine
    seen: dict[str, _Seen] = field(default_factory=dict)
    preempted_total: int = 0

    def __post_init__(self) -> None:
        self.to_add = list(reversed(self.recording.requests))

    def step(self, k: int) -> Step | None:
        """Do what was done before step k, then make the step; None if nothing is left to do."""
        self._touch(k)
        while True:
            self._speculate(k)
            step = self.engine.step()
            if step is not None:
                self._note(k, step)
                return step
            if not self.to_add:
                return None
            # An idle engine makes no step: the next additions are made at once.
            self._add(k, until=self.to_add[-1].before_step)

    def _touch(self, k: int) -> None:
        """Aborts due, then weight updates, then additions."""
        due = [seen for seen in self.seen.values() if seen.recorded.abort_after_step == k - 1 and seen.reason is None]
        for seen in sorted(due, key=lambda seen: seen.recorded.place):
            self.engine.abort(seen.recorded.id)
            seen.reason, seen.finish_step = "abort", k - 1
        for after_step, clear_cache in self.recording.weight_updates:
            if after_step == k - 1:
                self.engine.update_weights(clear_cache)
        self._add(k, until=k)

    def _speculate(self, k: int) -> None:
        for id, speculation in self._speculation(k).items():
            if id in self.seen and self.seen[id].reason is None:
                self.engine.set_speculation(id, speculation.drafts, speculation.accepted)

    def _speculation(self, k: int) -> Mapping[str, Speculation]:
        steps = self.recording.speculation
        return steps[k] if steps is not None and k < len(steps) else {}

    def _add(self, k: int, until: int) -> None:
        while self.to_add and self.to_add[-1].before_step <= until:
            request = self.to_add.pop()
            self.engine.add(
                request.id,
                request.prompt_tokens,
                request.output_tokens,
                priority=request.priority,
                parent=request.parent,
                shared_tokens=request.shared_tokens,
            )
            self.seen[request.id] = _Seen(request, added_before_step=k)

    def result(self, id: str) -> dict[str, Any]:
        """Tell what became of a request, in the recording's own fields."""
        return self.seen[id].result(self.recording.is_async)

    def _note(self, k: int, step: Step) -> None:
        self.preempted_total += len(step.preempted)
        for id in step.preempted:
            self.seen[id].preemptions += 1
        for scheduled in step.scheduled:
            seen = self.seen[scheduled.id]
            seen.last_scheduled_step = k
            if seen.first_scheduled_step is None:
                seen.first_scheduled_step = k
        for id, output_tokens in step.outputs.items():
            seen = self.seen[id]
            seen.output_tokens = output_tokens
            if seen.first_token_step is None:
                seen.first_token_step = k
        for id in step.finished:
            self.seen[id].reason, self.seen[id].finish_step = "length", k

    def row(self, k: int, step: Step) -> dict[str, int]:
        """Count the step in the recording's columns."""
        if self.recording.is_async:
            return {
                "n_requests": len(step.scheduled),
                "tokens": sum(scheduled.tokens for scheduled in step.scheduled),
                "blocks_after_schedule": step.blocks_peak,
                "running_after_schedule": step.running_peak,
                "waiting_after_schedule": step.waiting_peak,
                "preempted_total": self.preempted_total,
                "blocks_after_update": step.blocks_used,
                "running_after_update": step.running,
                "waiting_after_update": step.waiting,
            }
        generating = [scheduled for scheduled in step.scheduled if scheduled.had_output]
        context = [scheduled for scheduled in step.scheduled if not scheduled.had_output]
        speculation = self._speculation(k)
        accepted = {
            scheduled.id: speculation[scheduled.id].accepted if scheduled.id in speculation else 0
            for scheduled in step.scheduled
        }
        return {
            "n_ctx_requests": len(context),
            "prefill_tokens": sum(scheduled.tokens for scheduled in context),
            "n_gen_requests": len(generating),
            "gen_tokens": sum(scheduled.tokens for scheduled in generating),
            "kv_tokens": sum(self.seen[id].recorded.prompt_tokens + tokens for id, tokens in step.outputs.items()),
            "kv_batch": sum(
                scheduled.computed + scheduled.tokens - scheduled.drafts + accepted[scheduled.id]
                for scheduled in step.scheduled
            ),
            "kv_held": step.kv_held,
            "blocks_peak": step.blocks_peak,
            "blocks_used": step.blocks_used,
            "running": step.running,
            "waiting": step.waiting,
            "preempted_total": self.preempted_total,
            "draft_tokens": sum(scheduled.drafts for scheduled in step.scheduled),
            "accepted_tokens": sum(accepted.values()),
        }

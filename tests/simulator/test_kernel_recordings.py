"""The compiled kernel does what real vLLM did: in every step by itself, and at every event that it jumps to."""

import math

import numpy as np
import pytest

from rollsim.simulator.costs import StepCost
from rollsim.simulator.judge import replay_recording
from rollsim.simulator.kernel import decode, state
from rollsim.simulator.replica import Replica
from rollsim.simulator.stepped_replica import SteppedReplica
from tests.golden import golden_recordings

STEADY = [name for name, recording in golden_recordings().items() if recording.speculation is None]


@pytest.mark.parametrize("name", golden_recordings())
def test_inv9_kernel_equals_the_recording_in_every_step(name):
    recording = golden_recordings()[name]
    comparison = replay_recording(recording, SteppedReplica(recording.limits))
    assert comparison.difference is None
    assert comparison.requests == ()
    assert comparison.equal_steps == comparison.steps == len(recording.rows)
    assert comparison.preemptions == sum(map(len, recording.preempted))


@pytest.mark.parametrize("name", STEADY)
def test_inv9_kernel_equals_the_recording_where_it_jumps(name):
    recording = golden_recordings()[name]
    run = JumpingRun(recording)
    run.go()
    assert run.seen == run.recorded
    results = {id: run.result(id) for id in recording.results}
    assert results == {id: {key: dict(recording.results[id])[key] for key in results[id]} for id in results}


def test_inv9_most_recorded_steps_are_jumped_over():
    events = steps = 0
    for name in STEADY:
        run = JumpingRun(golden_recordings()[name])
        run.go()
        events += run.engine["events"]
        steps += run.engine["step"]
    assert events < 0.7 * steps


class JumpingRun:
    """Runs a recorded workload from one external event to the next, however many steps lie between.

    Every step takes one second, so that times are numbers of steps. Acceptances of drafts change at every step:
    recordings of speculation cannot be run like this.
    """

    def __init__(self, recording):
        limits = recording.limits
        tokens, seqs = limits.max_num_batched_tokens + 1, limits.max_num_seqs + 1
        cost = StepCost(1.0, False, np.zeros(tokens), np.zeros(tokens), np.zeros(seqs), 0.0, [0.0], [1.0], [0.0])
        self.recording = recording
        self.replica = Replica(limits, cost)
        self.to_add = list(recording.requests)
        self.added_before = {}
        self.seen, self.recorded = [], []

    @property
    def engine(self):
        return self.replica.arrays.engine[0]

    def go(self):
        while True:
            k = int(self.engine["step"])
            self._compare(k)
            self._touch(k)
            if not self.engine["n_unfinished"]:
                if not self.to_add:
                    return
                # An idle engine makes no step: the next additions are made at once.
                self._add(k, until=self.to_add[0].before_step)
            self.replica.run_steps(min(self._events(k), default=1 << 40) - k)

    def _events(self, k):
        aborts = [request.abort_after_step for request in self.recording.requests]
        steps = [request.before_step for request in self.to_add]
        steps += [after + 1 for after in aborts if after is not None]
        steps += [after + 1 for after, _ in self.recording.weight_updates]
        return [step for step in steps if step > k]

    def _touch(self, k):
        for request in sorted(self.recording.requests, key=lambda request: request.place):
            if request.abort_after_step == k - 1 and request.id in self.added_before:
                self.replica.abort(self.replica.now_s, request.id)
        for after, clear_cache in self.recording.weight_updates:
            if after == k - 1:
                self.replica.pause(self.replica.now_s, clear_cache)
                self.replica.resume(self.replica.now_s)
        self._add(k, until=k)

    def _add(self, k, until):
        while self.to_add and self.to_add[0].before_step <= until:
            request = self.to_add.pop(0)
            self.replica.dispatch(
                self.replica.now_s, request.id, request.prompt_tokens, request.output_tokens,
                priority=request.priority, parent=request.parent, shared_tokens=request.shared_tokens,
            )  # fmt: skip
            self.added_before[request.id] = k

    def _compare(self, k):
        """Note what is held after step k - 1, and what was."""
        if k == 0:
            return
        row = dict(zip(self.recording.columns, self.recording.rows[k - 1], strict=True))
        rank = self.replica.arrays.rank[0]
        used = int(self.engine["num_blocks"] - rank["free_keyless"] - rank["free_keyed"])
        held = [int(rank["n_running"]), int(rank["n_waiting"]), used, int(self.engine["preemptions"])]
        if self.recording.is_async:
            names = ("running_after_update", "waiting_after_update", "blocks_after_update", "preempted_total")
        else:
            names = ("running", "waiting", "blocks_used", "preempted_total", "kv_held")
            held.append(self._kv_held())
        self.seen.append((k, *held))
        self.recorded.append((k, *(row[name] for name in names)))

    def _kv_held(self):
        s = self.replica.arrays
        live = np.flatnonzero((s.request["state"] >= state.RUNNING) & (s.request["state"] <= state.ENDING))
        return sum(int(decode.computed_tokens(s, r)) for r in live)

    def result(self, id):
        """Tell the result in the words of the recording."""
        result = self.replica.results()[id]
        if self.recording.is_async:
            return {
                "first": self._admitted_in(id),
                "finish": _step(result.finish_s) - (result.reason == "abort"),
                "reason": result.reason,
                "preemptions": result.preemptions,
            }
        return {
            "added_before_step": self.added_before[id],
            "first_token_step": None if result.first_token_s is None else _step(result.first_token_s) - 1,
            "finish_step": _step(result.finish_s) - 1,
            "finish_reason": result.reason,
            "num_preemptions": result.preemptions,
            "output_tokens": result.output_tokens,
        }

    def _admitted_in(self, id):
        admit_s = float(self.replica.arrays.request[list(self.added_before).index(id)]["admit_s"])
        return None if admit_s < 0 else _step(admit_s)


def _step(t_s):
    assert math.isclose(t_s, round(t_s), abs_tol=1e-6)
    return round(t_s)

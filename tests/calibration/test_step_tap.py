"""The tap reads a scheduler's internals; one that has moved is named, with the version that is known."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from rollsim.calibration.engine_faults import EngineMoved
from rollsim.calibration.step_tap import StepTap


def request(id: str, outputs: int, computed: int) -> SimpleNamespace:
    return SimpleNamespace(
        request_id=id,
        num_output_tokens=outputs,
        num_computed_tokens=computed,
        num_tokens=10 + outputs,
        is_finished=lambda: False,
        get_finished_reason=lambda: None,
    )


class Scheduler:
    """As much of vLLM's scheduler as is read: 9 blocks used after scheduling, two requests scheduled."""

    def __init__(self) -> None:
        requests = {"a-1": request("a-1", 0, 7), "b-1": request("b-1", 3, 12)}
        self.requests: dict[str, Any] = requests
        self.running = list(requests.values())
        self.kv_cache_manager = SimpleNamespace(
            block_pool=SimpleNamespace(num_gpu_blocks=21, get_num_free_blocks=lambda: 11)
        )

    def get_request_counts(self) -> tuple[int, int]:
        return 2, 1

    def schedule(self) -> Any:
        return SimpleNamespace(
            num_scheduled_tokens={"a-1": 7, "b-1": 1}, preempted_req_ids={"c-1"}, scheduled_spec_decode_tokens={}
        )

    def update_from_output(self) -> None:
        pass


def tapped(scheduler: Any) -> StepTap:
    tap = StepTap(scheduler, "0.99")
    for id in "abc":
        tap.name(f"{id}-1", id)
    return tap


def test_a_step_is_counted_as_in_a_recording():
    scheduler = Scheduler()
    tap = tapped(scheduler)
    scheduler.schedule()
    scheduler.requests["b-1"].num_output_tokens = 4
    scheduler.requests["b-1"].num_tokens = 14
    step = tap.step(2.0, 1.5)
    assert (step.wall_ms, step.cpu_ms) == (2.0, 1.5)
    assert step.counts == {
        "n_ctx_requests": 1, "prefill_tokens": 7, "n_gen_requests": 1, "gen_tokens": 1, "kv_tokens": 14,
        "kv_batch": 19, "kv_held": 19, "blocks_peak": 9, "blocks_used": 9, "running": 2, "waiting": 1,
        "draft_tokens": 0, "accepted_tokens": 0,
    }  # fmt: skip
    assert step.scheduled == {"a": 7, "b": 1}
    assert step.preempted == ("c",)
    assert step.outputs == {"b": 4}
    assert step.cached == {"a": 0, "b": 11}


def test_time_between_scheduling_and_the_update_is_the_models():
    scheduler = Scheduler()
    tap = tapped(scheduler)
    scheduler.schedule()
    time.sleep(0.03)
    scheduler.update_from_output()
    step = tap.step(50.0, 5.0)
    assert step.host_wall_ms is not None
    assert 0 < step.host_wall_ms <= 20.5
    assert step.host_cpu_ms is not None
    assert 0 <= step.host_cpu_ms <= 5.0


@pytest.mark.parametrize(
    "gone", ["schedule", "update_from_output", "kv_cache_manager", "get_request_counts", "requests", "running"]
)
def test_what_has_moved_is_named_in_one_line(gone):
    class Moved(Scheduler):
        def __getattribute__(self, name: str) -> Any:
            if name == gone:
                raise AttributeError(name, name=name, obj=self)
            return super().__getattribute__(name)

    def one_step() -> None:
        scheduler = Moved()
        tap = tapped(scheduler)
        scheduler.schedule()
        tap.step(1.0, 1.0)

    with pytest.raises(EngineMoved) as moved:
        one_step()
    message = str(moved.value)
    assert f"vLLM 0.99 has no Moved.{gone}" in message
    assert "0.32.0" in message
    assert "\n" not in message

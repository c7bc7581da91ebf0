"""Timings of an engine that are not steps: interruption, new weights, sleep, speculation.

Each function takes an engine and returns JSON: seconds, or why it could not be timed (``not_timed``).
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from rollsim.calibration.batch import Batch, Request
from rollsim.calibration.recorder import Driver, record, recording_config

# Steps before an engine is touched, so that all requests decode.
_LEAD = 16
_PROMPT = 32
Timing = dict[str, Any]


class Engine(Driver, Protocol):
    """A driver that can be touched between two steps."""

    build: str
    temperature: float

    def preemptions(self, id: str) -> int:
        """How often a request was preempted so far."""
        ...

    def pause(self, *, clear_cache: bool) -> None:
        """Stop between two steps, keeping what runs, and go on."""
        ...

    def reload_weights(self, model: str) -> None:
        """Load weights from a folder into the running engine."""
        ...

    def sleep_and_wake(self) -> None:
        """Give up memory and take it back."""
        ...


def _decoding(driver: Engine, seqs: int) -> list[Request]:
    """Fill the engine with requests that decode."""
    driver.reset()
    requests = [Request(f"r{i}", _PROMPT, 8 * _LEAD) for i in range(seqs)]
    for i, request in enumerate(requests):
        driver.add(request, _prompt(driver, i))
    for _ in range(_LEAD):
        driver.step()
    return requests


def _prompt(driver: Engine, i: int) -> list[int]:
    return [(97 * i + 7 * k) % (driver.vocab - 32) + 16 for k in range(_PROMPT)]


def _timed(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return round(time.perf_counter() - began, 6)


def _plain_step_s(driver: Engine) -> float:
    return round(statistics.median(driver.step().wall_ms for _ in range(5)) / 1e3, 6)


def abort_resume(driver: Engine, seqs: int) -> Timing:
    """Interrupt all requests and send them again with what they had generated."""
    requests = _decoding(driver, seqs)
    plain_s = _plain_step_s(driver)
    partial = {request.id: driver.output_ids(request.id) for request in requests}
    abort_s = _timed(lambda: [driver.abort(request.id) for request in requests])
    resumed = [
        replace(request, id=f"{request.id}-resumed", output_tokens=request.output_tokens - len(partial[request.id]))
        for request in requests
    ]

    def send() -> None:
        for i, (request, again) in enumerate(zip(requests, resumed, strict=True)):
            driver.add(again, _prompt(driver, i) + partial[request.id])

    resume_s = _timed(send)
    first_step_s = driver.step().wall_ms / 1e3
    driver.reset()
    return {
        "requests": seqs,
        "tokens_each": _PROMPT + len(partial[requests[0].id]),
        "abort_s": abort_s,
        "resume_s": resume_s,
        "first_step_after_s": round(first_step_s, 6),
        "plain_step_s": plain_s,
    }


def weight_reload(driver: Engine, seqs: int, weights: str) -> Timing:
    """Load the model's own weights again between two steps, the KV cache kept."""
    if not Path(weights).is_dir():
        return {"not_timed": "weights are reloaded from a folder, and the model was given by name"}
    _decoding(driver, seqs)
    plain_s = _plain_step_s(driver)
    reload_s = [_timed(lambda: driver.reload_weights(weights)) for _ in range(3)]
    first_step_s = driver.step().wall_ms / 1e3
    driver.reset()
    return {
        "requests": seqs,
        "reload_s": statistics.median(reload_s),
        "first_step_after_s": round(first_step_s, 6),
        "plain_step_s": plain_s,
    }


def pause_recompute(driver: Engine, seqs: int) -> Timing:
    """Pause between two steps with the cache cleared: every request is prefilled again."""
    _decoding(driver, seqs)
    plain_s = _plain_step_s(driver)
    pause_s = _timed(lambda: driver.pause(clear_cache=True))
    first_step_s = driver.step().wall_ms / 1e3
    driver.reset()
    return {
        "requests": seqs,
        "pause_s": pause_s,
        "first_step_after_s": round(first_step_s, 6),
        "plain_step_s": plain_s,
    }


def sleep_wake(driver: Engine) -> Timing:
    """Give up the GPU's memory and take it back."""
    if driver.build == "cpu":
        return {"not_timed": "on a CPU nothing is freed"}
    driver.reset()
    return {"sleep_wake_s": _timed(driver.sleep_and_wake)}


def speculation(driver: Engine, seqs: int, output_tokens: int) -> Timing:
    """A full batch, greedy, on an engine that may speculate; the same is run on one that does not.

    At temperature 1 vLLM's CPU build checks drafts a hundred times slower, and random models accept none.
    """
    driver.temperature = 0.0
    requests = tuple(Request(f"r{i}", _PROMPT, output_tokens) for i in range(seqs))
    batch = Batch("speculation", "full batch", "fit", requests)
    config = recording_config(driver.facts(), driver.temperature)
    try:
        record(batch, driver, config, 0)
        run = record(batch, driver, config, 0)
    finally:
        driver.temperature = 1.0
    columns = {name: i for i, name in enumerate(run["columns"])}
    decoding = [k for k, row in enumerate(run["rows"]) if row[columns["n_ctx_requests"]] == 0]

    def total(name: str) -> int:
        return sum(row[columns[name]] for row in run["rows"])

    return {
        "requests": seqs,
        "output_tokens": seqs * output_tokens,
        "steps": run["steps"],
        "draft_tokens": total("draft_tokens"),
        "accepted_tokens": total("accepted_tokens"),
        "decode_step_s": round(statistics.median(run["wall_ms"][k] for k in decoding) / 1e3, 6),
        "total_s": round(sum(run["wall_ms"]) / 1e3, 6),
    }


TIMINGS: dict[str, Callable[..., Timing]] = {
    "abort_resume": abort_resume,
    "weight_reload": weight_reload,
    "pause_recompute": pause_recompute,
    "sleep_wake": sleep_wake,
    "speculation": speculation,
}

"""A world run on any engine with the timed interface, and the comparison of two such runs."""

import heapq
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits
from tests.simulator.worlds import World

FIELDS = (
    "reason", "output_tokens", "preemptions", "cached_tokens", "recomputed_tokens", "first_token_s", "finish_s",
)  # fmt: skip


class TimedEngine(Protocol):
    """An engine with touches; each first runs the engine to t, then acts at the step boundary reached.

    `abort` and `take_out` return None, and `set_rate` does nothing, if the request has ended by then.
    """

    @property
    def now(self) -> float: ...
    def advance(self, t: float) -> None: ...
    def run(self) -> None: ...
    def dispatch(
        self,
        t: float,
        id: int,
        prompt_tokens: int,
        output_tokens: int,
        *,
        parent: int | None = None,
        shared_tokens: int = 0,
        priority: int = 0,
        rate: float = 1.0,
        drafts: int = 0,
        rank: int | None = None,
        kv_tokens: int = 0,
    ) -> None: ...
    def abort(self, t: float, id: int) -> int | None: ...
    def take_out(self, t: float, id: int, keep_kv: bool) -> tuple[int, int] | None: ...
    def pause(self, t: float, clear_cache: bool) -> None: ...
    def resume(self, t: float) -> None: ...
    def swap(self, t: float, version: int, keep_kv: bool) -> None: ...
    def set_rate(self, t: float, id: int, rate: float, drafts: int) -> None: ...
    def state(self) -> Sequence[tuple[int, int, int, int]]:
        """Per rank: running, waiting, blocks in use, tokens with KV of `running`."""
        ...

    def results(self) -> Mapping[int, Any]:
        """By id an object with the attributes `FIELDS`."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What a run showed: after each touch, for each request, and the time at its end."""

    seen: list[dict[str, Any]]
    requests: dict[int, dict[str, Any]]
    end_s: float


def outcome(engine_factory: Callable[[EngineLimits, StepCost], TimedEngine], world: World) -> Outcome:
    """Run a world to its end."""
    engine = engine_factory(world.engine_limits(), world.step_cost())
    run = _Run(engine, world)
    while run.queue:
        _, _, touch = heapq.heappop(run.queue)
        run.apply(touch)
    engine.run()
    requests = {id: {name: getattr(result, name) for name in FIELDS} for id, result in engine.results().items()}
    return Outcome(run.seen, requests, engine.now)


class _Run:
    """Applies touches in the order of their times, and makes those that follow from others."""

    def __init__(self, engine: TimedEngine, world: World) -> None:
        self.engine = engine
        self.order = itertools.count()
        self.queue = [(touch["t"], next(self.order), touch) for touch in world.touches]
        heapq.heapify(self.queue)
        self.seen: list[dict[str, Any]] = []
        self.dispatched: dict[int, dict[str, Any]] = {}
        self.carrier: dict[int, int | None] = {}
        self.next_id = sum(touch["kind"] == "dispatch" for touch in world.touches)
        self.longest = world.limits["max_model_len"]

    def apply(self, touch: dict[str, Any]) -> None:
        fields = {name: value for name, value in touch.items() if name not in ("kind", "t", "origin")}
        kind, t = touch["kind"], touch["t"]
        returned = None
        if kind == "look":
            self.engine.advance(t)
        elif kind == "dispatch":
            self.engine.dispatch(t, **fields)
            self.dispatched[touch["id"]] = fields
            self.carrier[touch.get("origin", touch["id"])] = touch["id"]
        elif kind in ("abort", "take_out"):
            returned = self._leave(touch)
        elif kind == "set_rate":
            id = self.carrier[touch["target"]]
            if id is not None:
                self.engine.set_rate(t, id, touch["rate"], touch["drafts"])
        else:
            getattr(self.engine, kind)(t, **fields)
        self.seen.append(
            {"kind": kind, "t": t, "returned": returned, "now": self.engine.now, "state": list(self.engine.state())}
        )

    def _leave(self, touch: dict[str, Any]) -> Any:
        """Abort or take out the target, and plan its next dispatch with what it has generated as prompt."""
        t, origin = touch["t"], touch["target"]
        id = self.carrier[origin]
        if id is None:
            return None
        if touch["kind"] == "abort":
            returned = self.engine.abort(t, id)
            left = None if returned is None else (returned, 0)
        else:
            returned = left = self.engine.take_out(t, id, touch["keep_kv"])
        if left is None or touch["again_after_s"] is None:
            return returned
        generated, kv_tokens = left
        old = self.dispatched[id]
        target = min(old["output_tokens"], self.longest - old["prompt_tokens"])
        again = old | {
            "kind": "dispatch",
            "t": t + touch["again_after_s"],
            "origin": origin,
            "id": self.next_id,
            "prompt_tokens": old["prompt_tokens"] + generated,
            "output_tokens": target - generated,
            "parent": id,
            "shared_tokens": old["prompt_tokens"] + generated,
            "rank": touch["rank"],
            "kv_tokens": kv_tokens,
        }
        self.next_id += 1
        self.carrier[origin] = None
        heapq.heappush(self.queue, (again["t"], next(self.order), again))
        return returned


def differences(one: Outcome, other: Outcome, tolerance: float = 1e-9) -> list[str]:
    """Tell every value in which two runs differ; times may differ by the relative tolerance."""
    return list(_differences("", vars(one), vars(other), tolerance))


def _differences(place: str, one: Any, other: Any, tolerance: float) -> list[str]:
    if isinstance(one, float) and isinstance(other, float):
        same = math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
        return [] if same else [f"{place}: {one!r} != {other!r}"]
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        return [text for key in one for text in _differences(f"{place}.{key}", one[key], other[key], tolerance)]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [text for i, (a, b) in pairs for text in _differences(f"{place}[{i}]", a, b, tolerance)]
    return [] if one == other else [f"{place}: {one!r} != {other!r}"]

"""Random small worlds: an engine, a step cost, and timed touches, valid by construction.

Most pools are small enough to starve, so that requests are preempted; every feature of the engine appears in a fair
share of the worlds (`test_reference_worlds.py` counts them). A world is plain data and can be written as JSON.
"""

import random
from dataclasses import asdict, dataclass
from typing import Any

from hypothesis import strategies as st

from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits

RATE_UNITS = 1024
SLOPES = (1.0, 0.5, 0.0)


@dataclass(frozen=True)
class World:
    """Limits, the fields of a `StepCost`, and touches in the order of their times.

    A touch is a dict with ``kind``, ``t`` and what the kind needs:

    dispatch: the arguments of the engine's `dispatch`; ids count from 0.
    abort, take_out (``keep_kv``): ``target``, and ``again_after_s``: when to dispatch prompt and partial output as
        a new request (None: never), with ``rank``, and with its KV where it was kept.
    pause (``clear_cache``), resume, swap (``version``, ``keep_kv``), set_rate (``target``, ``rate``, ``drafts``).
    look: run the engine to t, and look.

    ``target`` is the id of a dispatch in the world; it stands for the request that now carries on its work.
    """

    limits: dict[str, Any]
    cost: dict[str, Any]
    touches: list[dict[str, Any]]

    def engine_limits(self) -> EngineLimits:
        """Limits of the engine."""
        return EngineLimits(**self.limits)

    def step_cost(self) -> StepCost:
        """Cost of its steps."""
        return StepCost(**self.cost)

    def to_dict(self) -> dict[str, Any]:
        """Write the world as plain JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "World":
        """Read what `to_dict` wrote."""
        return cls(**plain)


class _Draw:
    """Draws that shrink to the plain case: 0, the lower end, the first choice, False."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def whole(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, max(low, high)))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) >= 100 - percent

    def choice(self, *values: Any) -> Any:
        return self.draw(st.sampled_from(values))


@st.composite
def worlds(
    draw: st.DrawFn,
    *,
    async_scheduling: bool | None = None,
    max_ranks: int = 3,
    touches: bool = True,
    rates: bool | None = None,
    max_requests: int = 16,
) -> World:
    """Draw a world; arguments fix or switch off a feature."""
    d = _Draw(draw)
    limits = _sizes(d, async_scheduling, max_ranks)
    with_rates = d.chance(40) if rates is None else rates
    max_drafts = d.whole(1, 3) if with_rates else 0
    # Coarse times are multiples of 1/4, and exact in floating point: touches then often fall on step boundaries.
    coarse = d.chance(40)
    tick_s = 0.25 if coarse else 0.0157831
    requests = _requests(d, limits, max_requests, max_drafts, with_rates)
    horizon = 4 + sum(request["output_tokens"] for request in requests) // 2
    steps = horizon * (5 if coarse else 64)
    late = d.chance(60)
    for request in requests:
        request["t"] = tick_s * d.whole(0, steps // 2) if late and d.chance(35) else 0.0
    _no_child_before_its_parent(requests)
    all_touches = [{"kind": "dispatch", **request} for request in requests]
    if touches:
        all_touches += _touches(d, limits, requests, steps, tick_s, max_drafts)
    all_touches.sort(key=lambda touch: touch["t"])
    _number(all_touches)
    _fit_pool(d, limits, requests, max_drafts)
    return World(limits, _cost(d, limits, coarse), all_touches)


def _sizes(d: _Draw, async_scheduling: bool | None, max_ranks: int) -> dict[str, Any]:
    """Everything of `EngineLimits` but the number of blocks."""
    max_num_seqs = d.whole(1, 3) if d.chance(20) else d.whole(3, 10)
    placeholders = d.whole(1, 3) if d.chance(15) else 0
    budget = max(max_num_seqs, 1 + placeholders) + (d.whole(0, 8) if d.chance(40) else d.whole(8, 80))
    chunked = not d.chance(12)
    max_model_len = d.choice(24, 48, 96)
    if not chunked:
        budget = max(budget, max_model_len)
    return {
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": budget,
        "block_size": d.choice(4, 1, 2, 8),
        "num_blocks": 0,
        "max_model_len": max_model_len,
        "long_prefill_token_threshold": d.whole(1, 12) if d.chance(35) else 0,
        "long_prefill_adaptive": d.chance(15),
        "watermark_blocks": d.whole(1, 4) if d.chance(35) else 0,
        "prefix_caching": d.chance(75),
        "chunked_prefill": chunked,
        "policy": "priority" if d.chance(35) else "fcfs",
        "async_scheduling": d.chance(50) if async_scheduling is None else async_scheduling,
        "num_speculative_tokens": placeholders,
        "lockstep_ranks": d.whole(2, max_ranks) if max_ranks > 1 and d.chance(40) else 1,
    }


def _requests(
    d: _Draw, limits: dict[str, Any], max_requests: int, max_drafts: int, with_rates: bool
) -> list[dict[str, Any]]:
    """Requests with `key` and `parent` as positions in this list."""
    size, longest = limits["block_size"], limits["max_model_len"]
    requests: list[dict[str, Any]] = []
    count = d.whole(1, max_requests) if d.chance(30) else d.whole(6, max_requests)
    while len(requests) < count:
        longest_prompt = longest * 2 // 3 if d.chance(50) else 3 * size
        prompt = d.whole(1, longest_prompt)
        if d.chance(40):
            prompt = -(-prompt // size) * size
        siblings = d.whole(2, 5) if d.chance(45) else 1
        first: int | None = None
        for _ in range(siblings):
            request = _request(d, limits, min(prompt, longest - 1), max_drafts, with_rates)
            if first is not None:
                request |= {"parent": first, "shared_tokens": prompt}
                if d.chance(20):
                    request["shared_tokens"] += d.whole(0, _alike(limits, request, requests[first]) - prompt)
            elif requests and d.chance(40):
                parent = d.whole(0, len(requests) - 1)
                shared = d.whole(1, _alike(limits, request, requests[parent]))
                request |= {"parent": parent, "shared_tokens": shared}
            request["key"] = len(requests)
            first = request["key"] if first is None else first
            requests.append(request)
    return requests


def _alike(limits: dict[str, Any], one: dict[str, Any], other: dict[str, Any]) -> int:
    """Most tokens two requests can share: the shorter content, prompt and output."""
    return min(min(r["prompt_tokens"] + r["output_tokens"], limits["max_model_len"]) for r in (one, other))


def _request(d: _Draw, limits: dict[str, Any], prompt: int, max_drafts: int, with_rates: bool) -> dict[str, Any]:
    room = limits["max_model_len"] - prompt
    output = 1 if d.chance(15) else d.whole(1, min(room, 40))
    if d.chance(4):
        output = room + d.whole(0, 5)
    drafts, rate = _rate(d, max_drafts) if with_rates and d.chance(60) else (0, 1.0)
    return {
        "prompt_tokens": prompt,
        "output_tokens": output,
        "parent": None,
        "shared_tokens": 0,
        "priority": d.whole(0, 2) if limits["policy"] == "priority" else 0,
        "rate": rate,
        "drafts": drafts,
        "rank": d.whole(0, limits["lockstep_ranks"] - 1) if limits["lockstep_ranks"] > 1 and d.chance(40) else None,
        "kv_tokens": d.whole(0, prompt + 1) if d.chance(10) else 0,
    }


def _rate(d: _Draw, max_drafts: int) -> tuple[int, float]:
    drafts = d.whole(0, max_drafts)
    rate_units = d.whole(RATE_UNITS, RATE_UNITS * (1 + drafts))
    if d.chance(25):
        rate_units = RATE_UNITS * d.whole(1, 1 + drafts)
    return drafts, rate_units / RATE_UNITS


def _no_child_before_its_parent(requests: list[dict[str, Any]]) -> None:
    for request in requests:
        if request["parent"] is not None:
            request["t"] = max(request["t"], requests[request["parent"]]["t"])


def _touches(
    d: _Draw, limits: dict[str, Any], requests: list[dict[str, Any]], steps: int, tick_s: float, max_drafts: int
) -> list[dict[str, Any]]:
    touches: list[dict[str, Any]] = []
    kinds = ["look", "abort", "take_out", "take_out", "pause", "swap"] + (["set_rate"] * 2 if max_drafts else [])
    for _ in range(d.whole(3, 14) if d.chance(80) else 0):
        t = tick_s * d.whole(0, steps)
        kind = d.choice(*kinds)
        touch: dict[str, Any] = {"kind": kind, "t": t}
        if kind in ("abort", "take_out", "set_rate"):
            target = d.choice(*requests)
            touch |= {"target": target["key"], "t": max(t, target["t"])}
        if kind in ("abort", "take_out"):
            touch["again_after_s"] = tick_s * d.whole(0, steps // 4) * d.whole(0, 1) if d.chance(70) else None
            ranks = limits["lockstep_ranks"]
            touch["rank"] = d.whole(0, ranks - 1) if ranks > 1 and d.chance(50) else None
        if kind == "take_out":
            touch["keep_kv"] = d.chance(60)
        if kind == "set_rate":
            touch["drafts"], touch["rate"] = _rate(d, max_drafts)
        if kind == "swap":
            touch["keep_kv"] = d.chance(40)
        touches.append(touch)
        if kind == "pause":
            touch["clear_cache"] = d.chance(50)
            touches.append({"kind": "resume", "t": t + tick_s * d.whole(0, steps // 4) * d.whole(0, 1)})
    return touches


def _number(touches: list[dict[str, Any]]) -> None:
    """Give ids in the order of dispatch, let parents and targets name ids, and count the versions of the weights."""
    swaps = [touch for touch in touches if touch["kind"] == "swap"]
    for version, touch in enumerate(swaps, 1):
        touch["version"] = version
    dispatches = [touch for touch in touches if touch["kind"] == "dispatch"]
    ids = {touch.pop("key"): id for id, touch in enumerate(dispatches)}
    for id, touch in enumerate(dispatches):
        touch["id"] = id
        if touch["parent"] is not None:
            touch["parent"] = ids[touch["parent"]]
    for touch in touches:
        if "target" in touch:
            touch["target"] = ids[touch["target"]]


def _fit_pool(d: _Draw, limits: dict[str, Any], requests: list[dict[str, Any]], max_drafts: int) -> None:
    """Choose a pool that holds each request alone, and in most worlds not all that may run together."""
    lookahead = max(max_drafts, limits["num_speculative_tokens"])
    ends = [min(request["prompt_tokens"] + request["output_tokens"], limits["max_model_len"]) for request in requests]
    least = max(-(-(end - 1 + lookahead) // limits["block_size"]) for end in ends)
    together = sum(-(-end // limits["block_size"]) for end in ends)
    extra = d.whole(0, d.choice(least // 2, least, 2 * least, together))
    limits["num_blocks"] = max(1, least) + extra


def _cost(d: _Draw, limits: dict[str, Any], coarse: bool) -> dict[str, Any]:
    """Random tables; in a coarse world multiples of a power of two, so that every time is exact."""
    noise = random.Random(d.whole(0, 2**16))
    unit_s = 0.25 if coarse else 0.26180339
    tokens = limits["max_num_batched_tokens"] * limits["lockstep_ranks"]
    knots = sorted({0, *(d.whole(1, limits["max_model_len"]) for _ in range(d.whole(0, 2)))})
    slopes = list(SLOPES[: len(knots)]) if coarse else sorted((noise.random() for _ in knots), reverse=True)
    offsets = [0.0]
    for j in range(1, len(knots)):
        offsets.append(offsets[-1] + (slopes[j - 1] - slopes[j]) * knots[j])
    read_unit_s = d.choice(0.0, 1 / 64 if coarse else 0.01713)
    return {
        "host_s": unit_s * d.whole(0, 4),
        "overlap": d.chance(50),
        "decode_s": [0.0] + [unit_s * noise.randint(1, 4) for _ in range(tokens)],
        "mixed_s": [0.0] + [unit_s * noise.randint(1, 8) for _ in range(tokens)],
        "kv_read_s": [read_unit_s * noise.randint(0, 3) for _ in range(limits["max_num_seqs"] + 1)],
        "prefill_attn_s": d.choice(0.0, 1 / 256 if coarse else 0.003127),
        "context_knots": [float(knot) for knot in knots],
        "context_slopes": slopes,
        "context_offsets": offsets,
    }

"""A request trace on replicas of a calibrated engine, each run alone from its first arrival to its last token."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rollsim.simulator.costs import StepCost
from rollsim.simulator.kernel import loop, state
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.replica import fill, unfit
from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.requests import RequestTrace
from rollsim.traces.schema import build

_SHOWN_FAULTS = 5
_ROUNDING = 1e-10


@dataclass(frozen=True)
class Replayed:
    """Tables of a replay, as of any run, and what the kernel counted.

    Attributes
    ----------
    tables
        ``rollouts``, ``gauges`` and ``ledger``.
    span_s
        From the first arrival to the last token of all replicas [s].
    events, steps
        Batch changes that the kernel computed, and engine steps that they stand for.
    max_batch, max_kv_tokens, max_step_tokens
        Largest values seen, for the fitted range of a profile: sequences of a rank, KV tokens that its blocks hold (a
        shared block counts once), tokens of a step.
    """

    tables: dict[str, pa.Table]
    span_s: float
    events: int
    steps: int
    max_batch: int
    max_kv_tokens: int
    max_step_tokens: int


def deal(trace: RequestTrace, replicas: int, lockstep_ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Replica and lockstep rank of each request.

    Groups (and requests without one) are dealt in turn in the order of their first request, so that the responses to a
    prompt share its KV; the ranks of a replica take its groups in turn.
    """
    single = trace.group < 0
    key = np.where(single, -1 - np.arange(len(trace)), trace.group)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    turn = np.empty(len(first), np.int64)
    turn[np.argsort(first)] = np.arange(len(first))
    turn = turn[inverse]
    return turn % replicas, turn // replicas % lockstep_ranks


def parents(group: np.ndarray) -> np.ndarray:
    """First request of each request's group, NONE for the first itself and for requests without a group."""
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    own = np.arange(len(group))
    parent = first[inverse]
    return np.where((group < 0) | (parent == own), state.NONE, parent)


def check_fit(trace: RequestTrace, limits: EngineLimits) -> None:
    """Refuse requests that the engine could never serve.

    Raises
    ------
    BadInput
        Naming the first few, and how many there are.
    """
    total = trace.prompt_tokens + np.minimum(trace.output_tokens, limits.max_model_len - trace.prompt_tokens) - 1
    longest = limits.num_blocks * limits.block_size
    suspects = (trace.prompt_tokens >= limits.max_model_len) | (total > longest - limits.num_speculative_tokens)
    if not limits.chunked_prefill:
        suspects |= total > limits.max_num_batched_tokens
    reasons = [
        (i, reason)
        for i in np.flatnonzero(suspects)
        if (reason := unfit(limits, int(trace.prompt_tokens[i]), int(trace.output_tokens[i])))
    ]
    if not reasons:
        return
    faults = [Fault(trace.path, trace.place(int(i)), message=reason) for i, reason in reasons[:_SHOWN_FAULTS]]
    if len(reasons) > _SHOWN_FAULTS:
        faults.append(Fault(trace.path, message=f"and {len(reasons) - _SHOWN_FAULTS} more requests that can never fit"))
    raise BadInput(faults)


def replay(
    trace: RequestTrace,
    limits: EngineLimits,
    cost: StepCost,
    *,
    replicas: int = 1,
    gpus_per_replica: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Replayed:
    """Run a trace through `replicas` equal engines.

    Parameters
    ----------
    trace : RequestTrace
    limits, cost
        Of one replica.
    replicas : int
        Groups are dealt to them in turn; no work moves afterwards.
    gpus_per_replica : int
        GPUs that the ledger counts for each.
    progress : callable, optional
        Called with the number of requests done.

    Raises
    ------
    BadInput
        For requests that can never fit.
    """
    check_fit(trace, limits)
    replica, rank = deal(trace, replicas, limits.lockstep_ranks)
    # The kernel's priorities are 32 bit wide; only their order counts.
    _, priority = np.unique(trace.priority, return_inverse=True)
    order = np.argsort(replica, kind="stable")
    bounds = np.searchsorted(replica[order], np.arange(replicas + 1))
    columns = {
        name: np.empty(len(trace), dtype)
        for name, dtype in (
            ("t_start_s", "f8"), ("t_first_token_s", "f8"), ("t_end_s", "f8"), ("output_tokens", "i8"),
            ("num_preempted", "i4"), ("cached_tokens", "i4"), ("recomputed_tokens", "i4"),
        )
    }  # fmt: skip
    fields = ("admit_s", "first_token_s", "finish_s", "out", "preemptions", "cached", "recomputed")
    engines = np.zeros(replicas, state.ENGINE)
    gauges = {}
    tables = state.tables(cost)
    idle = state.allocate(limits, tables, 0)
    s = state.allocate(limits, tables, int(np.diff(bounds).max()))
    dealt = np.diff(bounds) > 0
    # The engines' clock begins at the first arrival: what went before is nobody's time, and would cost it digits.
    first_s = float(trace.arrival_s[0])
    arrival_s = trace.arrival_s - first_s
    for i in np.flatnonzero(dealt).tolist():
        chosen = order[bounds[i] : bounds[i + 1]]
        slots = slice(len(chosen))
        state.restart(s, idle, len(chosen))
        fill(s, slots, trace.prompt_tokens[chosen], trace.output_tokens[chosen], limits.max_model_len)
        requests = s.request[slots]
        requests["priority"], requests["rank"] = priority[chosen], rank[chosen]
        parent = parents(trace.group[chosen])
        requests["parent"], requests["shared"] = parent, np.where(parent < 0, 0, trace.prompt_tokens[chosen])
        loop.feed(s, arrival_s[chosen], 0)
        for column, field in zip(columns.values(), fields, strict=True):
            column[chosen] = requests[field]
        engines[i] = s.engine[0]
        gauges[i] = s.gauge[: engines[i]["gauge_n"]].copy()
        if progress is not None:
            progress(int(bounds[i + 1]))
    for name in ("t_start_s", "t_first_token_s", "t_end_s"):
        columns[name] += first_s
    rollouts = build("rollouts", _rollouts(trace, limits, replica, columns))
    return Replayed(
        tables={
            "rollouts": rollouts,
            "gauges": _gauges(gauges, limits, first_s),
            "ledger": _ledger(engines, dealt, gpus_per_replica),
        },
        span_s=float(engines["now_s"].max()),
        events=int(engines["events"].sum()),
        steps=int(engines["step"].sum()),
        max_batch=int(engines["max_batch"].max()),
        max_kv_tokens=int(engines["max_blocks"].max()) * limits.block_size,
        max_step_tokens=int(engines["max_step_tokens"].max()),
    )


def _rollouts(
    trace: RequestTrace, limits: EngineLimits, replica: np.ndarray, columns: dict[str, np.ndarray]
) -> dict[str, object]:
    truncated = columns["output_tokens"] < trace.output_tokens
    ids = trace.ids if trace.ids is not None else pa.array(np.arange(len(trace))).cast(pa.string())
    return {
        **columns,
        "framework": "rollsim",
        "group_id": np.ma.masked_less(trace.group, 0),
        "sample_id": ids,
        "prompt_tokens": trace.prompt_tokens,
        "finish_reason": pa.DictionaryArray.from_arrays(pa.array(truncated.astype(np.int32)), ["stop", "length"]),
        "is_truncated": truncated,
        "max_output_tokens": limits.max_model_len - trace.prompt_tokens,
        "t_submit_s": trace.arrival_s,
        "queue_s": columns["t_start_s"] - trace.arrival_s,
        "gen_s": columns["t_end_s"] - columns["t_start_s"],
        "replica": replica,
        "status": "finished",
    }


def _gauges(gauges: dict[int, np.ndarray], limits: EngineLimits, first_s: float) -> pa.Table:
    rows = np.concatenate(list(gauges.values()))
    return build(
        "gauges",
        {
            "t_s": rows["t_s"] + first_s,
            "replica": np.repeat(list(gauges), [len(g) for g in gauges.values()]),
            "running": rows["running"],
            "waiting": rows["waiting"],
            "kv_used_blocks": rows["blocks"],
            "kv_total_blocks": limits.num_blocks * limits.lockstep_ranks,
            "num_preempted": rows["preemptions"],
        },
    )


def _ledger(engines: np.ndarray, dealt: np.ndarray, gpus: int) -> pa.Table:
    """GPU-seconds of the rollout pool, from the first arrival to the last token of all replicas.

    Idle is the remainder, so that the rows add up to GPUs x span (INV-1). A remainder within the rounding of the sums
    is no idleness: it goes to decode.

    Parameters
    ----------
    engines
        ENGINE records at the end, one a replica; their clocks began at the first arrival.
    dealt
        Whether a replica was dealt any request.
    gpus
        GPUs of one replica.
    """
    end_s = engines["now_s"]
    span_s = end_s.max()
    prefill_s, recompute_s, host_s = (engines[f"{name}_time_s"] for name in ("prefill", "recompute", "host"))
    decode_s = engines["decode_time_s"].copy()
    idle_s = end_s - (prefill_s + decode_s + recompute_s + host_s)
    rounding = np.abs(idle_s) <= _ROUNDING * span_s
    decode_s[rounding] += idle_s[rounding]
    idle_s[rounding] = 0.0
    if (idle_s < 0).any():
        raise ArithmeticError(f"INV-1: a replica accounts for more time than passed, by {-idle_s.min()} s")
    rows = (
        ("prefill", None, prefill_s.sum()),
        ("decode", None, decode_s.sum()),
        ("reprefill", "preemption", recompute_s.sum()),
        ("host", None, host_s.sum()),
        ("idle", "no request on the replica", idle_s.sum()),
        ("idle", "no request was dealt to the replica", span_s * (~dealt).sum()),
        ("tail_bubble", "other replicas still generate", (span_s - end_s)[dealt].sum()),
    )
    categories, causes, seconds = zip(*rows, strict=True)
    return build(
        "ledger",
        {
            "pool": "rollout",
            "category": pa.array(categories),
            "cause": pa.array(causes),
            "gpu_s": np.array(seconds) * gpus,
        },
    )

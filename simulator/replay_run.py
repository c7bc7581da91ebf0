"""A replay from what the user names to a result: trace, profile and options in, tables and one JSON document out."""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from rollsim.simulator.costs import StepCost
from rollsim.simulator.engine_options import Engine, EngineOptions, check_values, engine
from rollsim.simulator.profile import Profile
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.replay import Replayed, check_fit, replay
from rollsim.simulator.warm_up import warm_up
from rollsim.traces.errors import BadInput, Fault, gathering
from rollsim.traces.kpis import kpis
from rollsim.traces.requests import RequestTrace, read_requests
from rollsim.traces.run import Run
from rollsim.traces.timeline import timeline
from rollsim.traces.writer import check_target, write_run

FORMAT = "rollsim-replay"
SCHEMA_VERSION = 1
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Prepared:
    """Everything a replay needs, checked."""

    trace: RequestTrace
    profile: Profile
    engine: Engine
    cost: StepCost
    options: EngineOptions


@dataclass(frozen=True)
class Outcome:
    """Tables of the run, its document (same for the same input), and how long the simulation took."""

    prepared: Prepared
    tables: dict[str, pa.Table]
    document: dict[str, Any]
    wall_s: float


def prepare(
    traces: Sequence[str], profile: str | None, options: EngineOptions, out: str | os.PathLike[str] | None = None
) -> Prepared:
    """Read the inputs and check that they go together.

    Parameters
    ----------
    traces
        One path or ``example:NAME``.
    profile
        Name or path of a profile.
    out
        Where a run folder will be written, if anywhere.

    Raises
    ------
    BadInput
        With every fault of every input.
    """
    faults = check_values(options)
    requests = loaded = resolved = None
    if len(traces) != 1:
        message = f"{len(traces)} given" if traces else "missing"
        allowed = "one file of requests, or example:NAME; or --recording FILE..."
        faults.append(Fault("TRACE", allowed=allowed, message=message))
    if profile is None:
        allowed = "a name of `rollsim profiles list`, or a .json file"
        faults.append(Fault("--profile", allowed=allowed, message="missing"))
    with gathering(faults):
        if len(traces) == 1:
            requests = read_requests(traces[0])
    with gathering(faults):
        if profile is not None:
            loaded = load_profile(profile, "--profile")
    with gathering(faults):
        if out is not None:
            check_target(out)
    if loaded is not None and not check_values(options):
        with gathering(faults):
            resolved = engine(loaded, options)
            if requests is not None:
                check_fit(requests, resolved.limits)
    if faults or requests is None or loaded is None or resolved is None:
        raise BadInput(faults)
    return Prepared(requests, loaded, resolved, loaded.step_cost(resolved.limits), options)


def work(prepared: Prepared) -> int:
    """Requests that `execute` will have run at the end, for a progress bar."""
    return len(prepared.trace) * (1 + len(_rerun_factors(prepared)))


def execute(prepared: Prepared, progress: Progress | None = None) -> Outcome:
    """Run the replay, and again with the costs scaled to the ends of the bias band where arrivals make that matter."""
    warm_up("replay")
    began_s = time.perf_counter()
    result = _replay(prepared, prepared.cost, 0, progress)
    scaled = {1.0: result.span_s}
    for i, factor in enumerate(_rerun_factors(prepared), start=1):
        scaled[factor] = _replay(prepared, scale(prepared.cost, factor), i * len(prepared.trace), progress).span_s
    document = _document(prepared, result, scaled)
    return Outcome(prepared, result.tables, document, time.perf_counter() - began_s)


def write(outcome: Outcome, out: str | os.PathLike[str]) -> Run:
    """Write the run folder of a replay."""
    prepared = outcome.prepared
    config = {
        "command": "replay",
        "trace": prepared.trace.path,
        "profile": prepared.profile.name,
        "replicas": prepared.options.replicas,
        "limits": asdict(prepared.engine.limits),
    }
    profile_hash = hashlib.sha256(prepared.profile.model_dump_json().encode()).hexdigest()
    inputs = {prepared.trace.path: prepared.trace.content_hash, prepared.profile.name: profile_hash}
    return write_run(out, outcome.tables, config, outcome.document, inputs=inputs, wall_s=outcome.wall_s)


def scale(cost: StepCost, factor: float) -> StepCost:
    """All times of a cost model, times a factor."""
    names = ("host_s", "decode_s", "mixed_s", "kv_read_s", "prefill_attn_s")
    return replace(cost, **{name: getattr(cost, name) * factor for name in names})


def _replay(prepared: Prepared, cost: StepCost, done: int, progress: Progress | None) -> Replayed:
    return replay(
        prepared.trace,
        prepared.engine.limits,
        cost,
        replicas=prepared.options.replicas,
        gpus_per_replica=prepared.profile.parallelism.gpus,
        progress=None if progress is None else lambda n: progress(done + n),
    )


def _factors(prepared: Prepared) -> tuple[float, ...]:
    band = prepared.profile.bias_band()
    return () if band is None else (band.low, band.median, band.high)


def _rerun_factors(prepared: Prepared) -> tuple[float, ...]:
    """Factors that need a run of their own: if all requests arrive at once, the scale does not change the schedule."""
    return _factors(prepared) if prepared.trace.arrival_s[-1] > prepared.trace.arrival_s[0] else ()


def _document(prepared: Prepared, result: Replayed, scaled: dict[float, float]) -> dict[str, Any]:
    trace, profile, options = prepared.trace, prepared.profile, prepared.options
    numbers = kpis(result.tables)
    groups = len(np.unique(trace.group[trace.group >= 0]))
    units = groups + int((trace.group < 0).sum())
    notes = [*prepared.engine.notes]
    if options.replicas > units:
        notes.append(f"{options.replicas - units} replicas had nothing to do: a group stays on one replica")
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "trace": {
            "path": trace.path,
            "content_hash": trace.content_hash,
            "requests": len(trace),
            "groups": groups,
            "prompt_tokens": int(trace.prompt_tokens.sum()),
            "output_tokens": int(trace.output_tokens.sum()),
            "first_arrival_s": float(trace.arrival_s[0]),
            "last_arrival_s": float(trace.arrival_s[-1]),
            "notes": [*trace.notes, *trace.arrival_notes],
            "unused_columns": list(trace.unused_columns),
        },
        "profile": {
            "name": profile.name,
            "model": profile.model.hf_name,
            "dtype": profile.model.dtype,
            "gpu": profile.gpu.name,
            "tp": profile.parallelism.tp,
            "source": profile.source.name,
            "cautions": list(profile.cautions),
        },
        "engine": {
            "name": profile.engine.name,
            "rules": profile.engine.rules,
            "replicas": options.replicas,
            "gpus": options.replicas * profile.parallelism.gpus,
            "limits": asdict(prepared.engine.limits),
            "kv_how": prepared.engine.kv_how,
            "notes": notes,
        },
        "kpis": numbers.document(),
        "timeline": [part.document() for part in timeline(result.tables["gauges"], replicas=options.replicas)],
        "bias": _bias(prepared, result, numbers.output_tokens, scaled),
        "outside_range": _outside(prepared, result),
        "claims": [claim.model_dump() for claim in profile.claims],
        "steps": result.steps,
        "events": result.events,
    }


def _bias(
    prepared: Prepared, result: Replayed, output_tokens: int, scaled: dict[float, float]
) -> dict[str, Any] | None:
    """Return the bias band, and the answer under its three factors."""
    band = prepared.profile.bias_band()
    if band is None:
        return None
    makespans = [scaled.get(factor, result.span_s * factor) for factor in _factors(prepared)]
    names = ("low", "median", "high")
    return asdict(band) | {
        "makespan_s": dict(zip(names, makespans, strict=True)),
        "output_tokens_per_s": {name: output_tokens / s for name, s in zip(names, makespans, strict=True)},
    }


def _outside(prepared: Prepared, result: Replayed) -> list[str]:
    """Say what of the run lies outside the fitted range of the profile."""
    trace, rollouts = prepared.trace, result.tables["rollouts"]
    context = trace.prompt_tokens + rollouts["output_tokens"].to_numpy() - 1
    preempted = rollouts["num_preempted"].to_numpy() > 0
    return prepared.profile.outside_range(
        max_batch=result.max_batch,
        max_context_tokens=int(context.max()),
        max_kv_tokens=result.max_kv_tokens,
        max_prefill_tokens=result.max_step_tokens,
        max_prefill_context_tokens=int(np.maximum(trace.prompt_tokens, np.where(preempted, context, 0)).max()),
    )

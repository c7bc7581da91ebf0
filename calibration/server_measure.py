"""Measures a running OpenAI-compatible server that somebody else started: what its clients see, and no more.

Batches of the same sweep, asked for over HTTP on a server that has nothing else to do. What a server does not tell, an
engine in this process would: the batch of each step, preemptions, host time. When tokens came tells the rest: a batch
of requests that all decode takes a step between two tokens of any of them (`server_features`).
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rollsim.calibration.batch import Batch, Request
from rollsim.calibration.engine_faults import EngineFailed, EngineUnfit
from rollsim.calibration.measure import PLAN_SHARE, rounds
from rollsim.calibration.model_shape import model_shape
from rollsim.calibration.server_client import ServerClient
from rollsim.calibration.server_measurement import LEVEL, ServerMeasurement, makespan_s
from rollsim.calibration.server_metrics import ServerMetrics, read_metrics
from rollsim.calibration.server_streams import run_streams
from rollsim.calibration.speed import Speed, estimate_s
from rollsim.calibration.sweep import SPANS, Sweep
from rollsim.simulator.facts import gpu_of_profile
from rollsim.simulator.limits import EngineLimits
from rollsim.traces.errors import BadInput, Fault

# Where a server does not tell them and the user does not say: as many as a client can follow, and vLLM's default.
SEQS, BATCHED_TOKENS, BLOCK = 32, 2_048, 16
_WARM_UP_TOKENS = 32
_LOOKS, _LOOKED_EVERY_S = 20, 0.5
# Responses that are over too soon come all at once.
_SHORTEST_SPAN = 1_024


def measure_server(
    url: str,
    out: Path,
    *,
    minutes: float = 10.0,
    seed: int = 0,
    stated: Mapping[str, Any] | None = None,
    patience_s: float = 60.0,
    progress: Callable[[float, str], None] = lambda _done, _what: None,
) -> dict[str, Any]:
    """Measure a server into a folder; go on with what is missing if it was begun.

    Parameters
    ----------
    url
        Of the server, with or without ``/v1``.
    out
        Folder of the measurement.
    minutes
        Time to spend, over all runs on this folder [min]. Every planned batch is run once even if it takes longer.
    seed
        Of lengths, prompts and sampling.
    stated
        What the user knows of the server, over what it tells: ``max_num_seqs``, ``max_num_batched_tokens``,
        ``max_model_len``; ``model_config``, the path of the model's config.json; ``gpu`` and ``memory_gib``.
    patience_s
        A server that says nothing for so long has stalled [s].
    progress
        Told how much is done, from 0 to 1, and with what.

    Returns
    -------
    dict
        What was measured, as JSON.

    Raises
    ------
    BadInput
        The folder holds another measurement, or this is no such server.
    EngineFailed
        The server failed or stalled. What was measured is kept.
    """
    folder = ServerMeasurement(out)
    try:
        asyncio.run(_measure(folder, ServerClient(url, patience_s), minutes, seed, dict(stated or {}), progress))
    except EngineUnfit as error:
        raise BadInput(Fault(url, message=str(error))) from error
    return summary(folder)


async def _measure(
    folder: ServerMeasurement,
    asked: ServerClient,
    minutes: float,
    seed: int,
    stated: dict[str, Any],
    progress: Callable[[float, str], None],
) -> None:
    began, spent_s = time.monotonic(), folder.manifest.get("spent_s", 0.0)

    def spent() -> float:
        return spent_s + time.monotonic() - began

    async with asked as client:
        facts = await _facts(client, stated)
        folder.begin({**facts, "level": LEVEL, "options": stated, "seed": seed})
        limits = EngineLimits(**facts["limits"])
        progress(0.0, "warm-up")
        speed = await _speed(client, limits, f"{seed} {time.time()}")
        folder.manifest["minutes"] = max(minutes, folder.manifest.get("minutes", 0.0))
        if "planned" not in folder.manifest:
            span = _span(limits, seed, speed, 60 * minutes * PLAN_SHARE)
            folder.manifest["span"] = span
            folder.manifest["planned"] = [
                {"name": batch.name, "purpose": batch.purpose, "role": batch.role}
                for batch in _batches(limits, span, seed)
            ]
        folder.save()
        try:
            planned = _batches(limits, folder.manifest["span"], seed)
            for done, batch in rounds(planned, folder, seed, lambda: spent() < 60 * minutes):
                progress(min(0.99, max(done, spent() / (60 * minutes))), batch.name)
                run = await run_streams(client, batch, f"{seed} {time.time()} {batch.name}")
                folder.add(batch.name, {**batch.document(), "repeats": [run]})
                folder.manifest["spent_s"] = round(spent(), 1)
                folder.save()
        finally:
            folder.manifest["spent_s"] = round(spent(), 1)
            folder.save()
            folder.write_tables()
    progress(1.0, "")


def _batches(limits: EngineLimits, span: int, seed: int) -> list[Batch]:
    """Batches of the sweep that need no look inside: all at the start, or one prompt after the other."""
    return [
        batch
        for batch in Sweep(limits, span, seed).batches()
        if not batch.options
        and (batch.name == "prefill_alone" or not any(r.before_step or r.abort_after_step for r in batch.requests))
    ]


def _span(limits: EngineLimits, seed: int, speed: Speed, seconds: float) -> int:
    spans = [span for span in SPANS if span >= _SHORTEST_SPAN]
    fitting = (span for span in spans if estimate_s(_batches(limits, span, seed), limits, speed) <= seconds)
    return next(fitting, spans[-1])


async def _speed(client: ServerClient, limits: EngineLimits, seed: str) -> Speed:
    """How fast it is, roughly: one request, then as many as run at once, each twice, for the first warms up."""
    seqs, output = limits.max_num_seqs, min(_WARM_UP_TOKENS, limits.max_model_len // 2)
    prompt = max(1, min(limits.max_num_batched_tokens, limits.max_model_len - output - 1))

    async def times(size: int, tokens: int) -> list[list[float]]:
        batch = Batch("warm_up", "", "fit", tuple(Request(f"r{i}", tokens, output) for i in range(size)))
        await run_streams(client, batch, f"{seed} {size} first")
        run = await run_streams(client, batch, f"{seed} {size}")
        return [stream["at_s"] for stream in run["streams"].values()]

    (one,), all_s = await times(1, prompt), await times(seqs, 4)
    step_s, full_s = (
        statistics.median((at_s[-1] - at_s[0]) / max(1, len(at_s) - 1) for at_s in found) for found in ([one], all_s)
    )
    return Speed(step_s, max(0.0, full_s - step_s) / max(1, seqs - 1), max(0.0, one[0] - step_s) / prompt)


async def _facts(client: ServerClient, stated: dict[str, Any]) -> dict[str, Any]:
    """What the server tells of itself, and what the user says of it; the rest is assumed, and said to be."""
    entry, version, seen = await client.model(), await client.version(), await _idle(client)
    root = Path(str(entry.get("root") or ""))
    file = stated.get("model_config") or (root / "config.json" if (root / "config.json").is_file() else None)
    shape = {"name": root.name or str(entry["id"]), "layers": None} if file is None else model_shape(Path(file))
    told = {
        "max_model_len": entry.get("max_model_len"),
        "block_size": seen.whole("block_size"),
        "num_blocks": (seen.whole("num_gpu_blocks") or 1) - 1 or None,
    }
    known = {name: stated.get(name) or told.get(name) for name in ("max_num_seqs", "max_num_batched_tokens", *told)}
    if known["max_model_len"] is None:
        raise EngineUnfit("it does not tell how long a sequence may be: say --max-model-len")
    seqs, block = known["max_num_seqs"] or SEQS, known["block_size"] or BLOCK
    limits = EngineLimits(
        max_num_seqs=seqs,
        max_num_batched_tokens=known["max_num_batched_tokens"] or BATCHED_TOKENS,
        block_size=block,
        num_blocks=known["num_blocks"] or seqs * -(-int(known["max_model_len"]) // block),
        max_model_len=int(known["max_model_len"]),
        prefix_caching=(seen.cache or {}).get("enable_prefix_caching", "True") == "True",
    )
    return {
        "engine": {
            "name": "vllm" if version or entry.get("owned_by") == "vllm" else str(entry.get("owned_by")),
            "version": version,
            "build": "server",
            "scheduling": "sync",
            "graph_sizes": [],
        },
        "model": shape,
        "device": _device(stated),
        "clock": "wall",
        "limits": asdict(limits),
        "assumed": sorted(name for name, value in known.items() if value is None),
    }


async def _idle(client: ServerClient) -> ServerMetrics:
    """Metrics of a server that has nothing to do; it may need a moment after another client has gone."""
    for _ in range(_LOOKS):
        text = await client.metrics()
        seen = (read_metrics(text) if text else None) or ServerMetrics()
        if not seen.running and not seen.waiting:
            return seen
        await asyncio.sleep(_LOOKED_EVERY_S)
    raise EngineFailed(f"{client.root} has other requests under way: they would be measured too")


def _device(stated: dict[str, Any]) -> dict[str, Any]:
    if (name := stated.get("gpu")) is None:
        return {"name": "unknown", "memory_gib": stated.get("memory_gib")}
    facts = gpu_of_profile(name)
    return {"name": facts.name, "memory_gib": stated.get("memory_gib") or facts.memory_gib}


def summary(folder: ServerMeasurement) -> dict[str, Any]:
    """What a folder holds, as JSON."""
    manifest = folder.manifest
    batches = [
        {
            "name": name,
            "role": recording["role"],
            "requests": len(recording["requests"]),
            "repeats": len(recording["repeats"]),
            "wall_s": [makespan_s(repeat) for repeat in recording["repeats"]],
            "client_share": max(repeat["client_share"] for repeat in recording["repeats"]),
        }
        for name, recording in folder.recordings().items()
    ]
    kept = ("level", "engine", "model", "device", "clock", "limits", "assumed", "span", "minutes", "spent_s")
    return {
        "format": manifest["format"],
        "schema_version": manifest["schema_version"],
        "folder": str(folder.path),
        **{key: manifest[key] for key in kept},
        "planned": len(manifest["planned"]),
        "batches": batches,
    }

"""Runs a batch on a running server, and writes down when each token of each response came."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from rollsim.calibration.batch import Batch, Request
from rollsim.calibration.engine_faults import EngineFailed
from rollsim.calibration.server_client import ServerClient
from rollsim.calibration.server_metrics import read_metrics

# Most vocabularies have as many; lower ones are often special.
_FIRST_TOKEN, _LAST_TOKEN = 100, 1_000
_SAMPLED_EVERY_S = 0.25


@dataclass
class _Run:
    client: ServerClient
    batch: Batch
    seed: str
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    gauges: list[list[float | None]] = field(default_factory=list)

    async def waves(self) -> None:
        """Ask for all requests of a wave at once, and for the next when all of them have ended."""
        self._began_s = time.perf_counter()
        sampler = asyncio.create_task(self._sample())
        try:
            requests = sorted(self.batch.requests, key=lambda request: request.before_step)
            for _, wave in groupby(requests, key=lambda request: request.before_step):
                async with asyncio.TaskGroup() as tasks:
                    for request in wave:
                        tasks.create_task(self._ask(request))
        finally:
            sampler.cancel()

    def _now_s(self) -> float:
        return round(time.perf_counter() - self._began_s, 6)

    async def _ask(self, request: Request) -> None:
        rng = random.Random(f"{self.seed} prompt of {request.group or request.id}")
        prompt = [rng.randint(_FIRST_TOKEN, _LAST_TOKEN) for _ in range(request.prompt_tokens)]
        stream: dict[str, Any] = {"submit_s": self._now_s(), "at_s": [], "tokens": [], "reason": None}
        self.streams[request.id] = stream
        async for piece in self.client.complete(prompt, request.output_tokens):
            stream["at_s"].append(self._now_s())
            stream["tokens"].append(piece.total)
            stream["reason"] = piece.finish_reason
        if not stream["tokens"] or stream["tokens"][-1] != request.output_tokens:
            made = stream["tokens"][-1] if stream["tokens"] else 0
            raise EngineFailed(
                f"asked for {request.output_tokens} tokens, the server made {made}: it knows no ignore_eos"
            )

    async def _sample(self) -> None:
        while True:
            text = await self.client.metrics()
            seen = read_metrics(text) if text else None
            if seen is None:
                return
            self.gauges.append([self._now_s(), seen.running, seen.waiting, seen.kv_share, seen.output_tokens])
            await asyncio.sleep(_SAMPLED_EVERY_S)


async def run_streams(client: ServerClient, batch: Batch, seed: str) -> dict[str, Any]:
    """Run a batch on a server that has nothing else to do.

    Parameters
    ----------
    client
        Of the server.
    batch
        What to ask for; ``before_step`` numbers waves: one begins when those before it have ended.
    seed
        Of prompts; another one for each repeat, or the prefix cache would answer.

    Returns
    -------
    dict
        ``streams`` by request: when it was sent, when how many tokens were there, and why it ended; ``gauges``: rows of
        time, running, waiting, share of KV, tokens made; ``client_share``: how busy this process was.

    Raises
    ------
    EngineFailed
        The server fails.
    """
    run = _Run(client, batch, seed)
    began_unix_s, wall, cpu = time.time(), time.perf_counter(), time.process_time()
    try:
        await run.waves()
    except* EngineFailed as failed:
        raise failed.exceptions[0] from None
    took = time.perf_counter() - wall
    return {
        "began_unix_s": round(began_unix_s, 3),
        "client_share": round((time.process_time() - cpu) / took, 3),
        "streams": {request.id: run.streams[request.id] for request in batch.requests},
        "gauges": run.gauges,
    }

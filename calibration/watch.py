"""Watches a running server by its ``/metrics``, window by window, beside what a profile predicts."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from rollsim.calibration.drift import DECIDING, Expected, Window, drift
from rollsim.calibration.engine_faults import EngineFailed, EngineUnfit
from rollsim.calibration.server_client import ServerClient
from rollsim.calibration.server_metrics import ServerMetrics, read_metrics
from rollsim.simulator.profile import Profile
from rollsim.traces.errors import BadInput, Fault

FORMAT = "rollsim-watch"
SCHEMA_VERSION = 1


def watch(
    url: str,
    profile: Profile,
    *,
    minutes: float,
    every_s: float,
    tolerance: float,
    patience_s: float = 20.0,
    seen: Callable[[Window | None, float], None] = lambda _window, _at_s: None,
) -> dict[str, Any]:
    """Watch a server.

    Parameters
    ----------
    url
        Of the server.
    profile
        What it should be like.
    minutes, every_s
        How long to watch, and the length of a window.
    tolerance
        Ratio of real to predicted time, less 1, that is no drift.
    patience_s
        A server that says nothing for so long has stalled [s].
    seen
        Called at the end of each window with it, or None if the server was idle, and the time of the watch [s].

    Returns
    -------
    dict
        As JSON: the windows, ``ratio`` and ``drifted``; ``ended`` says why, if the server failed on the way.

    Raises
    ------
    BadInput
        No such server, or one without vLLM's metrics.
    EngineFailed
        It does not answer at all.
    """
    try:
        return asyncio.run(_watch(ServerClient(url, patience_s), profile, minutes, every_s, tolerance, seen))
    except EngineUnfit as error:
        raise BadInput(Fault(url, message=str(error))) from error


async def _watch(
    asked: ServerClient,
    profile: Profile,
    minutes: float,
    every_s: float,
    tolerance: float,
    seen: Callable[[Window | None, float], None],
) -> dict[str, Any]:
    windows: list[Window] = []
    idle, ended = 0, None
    async with asked as client:
        before = await _scrape(client)
        expected = _expected(profile, before)
        began_s = last_s = time.monotonic()
        while ended is None and last_s - began_s < 60 * minutes:
            await asyncio.sleep(every_s)
            try:
                after = await _scrape(client)
            except EngineFailed as error:
                ended = str(error)
                break
            now_s = time.monotonic()
            window = expected.window(before, after, now_s - began_s, now_s - last_s)
            before, last_s = after, now_s
            idle += window is None
            windows += [] if window is None else [window]
            seen(window, now_s - began_s)
    ratio, drifted = drift(windows, tolerance)
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "server": asked.root,
        "profile": profile.name,
        "every_s": every_s,
        "tolerance": tolerance,
        "deciding": DECIDING,
        "idle_windows": idle,
        "windows": [asdict(window) | {"ratio": window.ratio} for window in windows],
        "ratio": ratio,
        "drifted": drifted,
        "ended": ended,
    }


async def _scrape(client: ServerClient) -> ServerMetrics:
    text = await client.metrics()
    try:
        found = read_metrics(text) if text is not None else None
    except ValueError:
        found = None
    if found is None:
        raise EngineUnfit(f"{client.root}/metrics tells nothing of a vLLM")
    return found


def _expected(profile: Profile, told: ServerMetrics) -> Expected:
    """The profile's limits, with the KV blocks that the server tells."""
    limits = profile.limits(server=True)
    blocks, size = told.whole("num_gpu_blocks"), told.whole("block_size")
    if blocks and size:
        limits = replace(limits, num_blocks=blocks - 1, block_size=size)
    return Expected(profile.step_cost(limits), limits)

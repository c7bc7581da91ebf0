"""Recordings of a real engine against the compiled one: what was equal, and the first step that was not."""

import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from rollsim.simulator.engine_options import EngineOptions
from rollsim.simulator.judge import Comparison, Pair, replay_recording
from rollsim.simulator.recording import Recording, read_recordings
from rollsim.simulator.replica import unfit
from rollsim.simulator.stepped_replica import SteppedReplica
from rollsim.traces.errors import BadInput, Fault

FORMAT = "rollsim-recordings"
SCHEMA_VERSION = 1
WIDTH = 80
SHOWN_REQUESTS = 8
_TRACE_ENDINGS = (".parquet", ".csv", ".jsonl", ".ndjson")


def read_all(
    paths: Sequence[str],
    profile: str | None = None,
    options: EngineOptions | None = None,
    out: str | os.PathLike[str] | None = None,
) -> list[Recording]:
    """Read the recordings of several files or archives.

    Parameters
    ----------
    paths
        Files, at least one.
    profile, options, out
        What a replay of a trace may be given and one of recordings may not.

    Raises
    ------
    BadInput
        With the faults of all files and options.
    """
    given = {"--profile": profile, "--out": out and os.fspath(out)} | (options.given() if options else {})
    message = "cannot go with --recording: a recording holds the limits of its engine, and takes no time"
    faults = [Fault(name, given=value, message=message) for name, value in given.items() if value is not None]
    if not paths:
        faults.append(Fault("--recording", allowed="recordings, .json or a .tar.xz of them", message="no file given"))
    recordings: list[Recording] = []
    for path in paths:
        if path.startswith("example:") or path.removesuffix(".gz").endswith(_TRACE_ENDINGS):
            faults.append(Fault(path, message="a TRACE and --recording cannot go together", allowed="one of the two"))
            continue
        try:
            recordings += read_recordings(path)
        except BadInput as error:
            faults += error.faults
    if faults:
        raise BadInput(faults)
    return recordings


def judge(recordings: Iterable[Recording], progress: Callable[[float], None] | None = None) -> dict[str, Any]:
    """Replay recordings on the compiled engine.

    Returns
    -------
    dict
        A JSON document; a pair is [recorded, simulated].

    Raises
    ------
    BadInput
        Names every request, of all recordings, that can never fit the engine it was made on.
    """
    recordings = list(recordings)
    faults = [fault for recording in recordings for fault in _unfit(recording)]
    if faults:
        raise BadInput(faults)
    rows = []
    for done, recording in enumerate(recordings, start=1):
        rows.append(_row(replay_recording(recording, SteppedReplica(recording.limits))))
        if progress is not None:
            progress(done)
    equal = sum(row["equal"] for row in rows)
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "equal": equal,
        "different": len(rows) - equal,
        "recordings": rows,
    }


def _unfit(recording: Recording) -> Iterable[Fault]:
    drafts: dict[str, int] = {}
    for step in recording.speculation or ():
        for id, speculation in step.items():
            drafts[id] = max(drafts.get(id, 0), speculation.drafts)
    for request in recording.requests:
        reason = unfit(recording.limits, request.prompt_tokens, request.output_tokens, drafts.get(request.id, 0))
        if reason is not None:
            yield Fault(recording.name, f"requests: {request.id}", message=reason)


def _row(comparison: Comparison) -> dict[str, Any]:
    return {
        "name": comparison.name,
        "scheduling": "asynchronous" if comparison.is_async else "synchronous",
        "steps": comparison.steps,
        "equal_steps": comparison.equal_steps,
        "preemptions": comparison.preemptions,
        "equal": comparison.equal,
        "difference": None if comparison.difference is None else asdict(comparison.difference),
        "requests": [asdict(request) for request in comparison.requests],
    }


def text(document: dict[str, Any]) -> str:
    """Lay out the document: a line per recording, and both sides of what differs."""
    rows = document["recordings"]
    names = [PurePath(row["name"]).name.removesuffix(".json") for row in rows]
    width = max(9, *map(len, names))
    lines = [f"{'recording':<{width}}  {'order':<5}{'steps':>7}{'preempted':>10}  result"]
    for name, row in zip(names, rows, strict=True):
        order = "async" if row["scheduling"] == "asynchronous" else "sync"
        verdict = "equal" if row["equal"] else "DIFFERS"
        lines.append(f"{name:<{width}}  {order:<5}{row['steps']:>7,}{row['preemptions']:>10,}  {verdict}")
        lines += _differences(row)
    steps = sum(row["steps"] for row in rows)
    total = f"{document['equal']} of {len(rows)} recordings equal in every step; {steps:,} steps recorded"
    return "\n".join([*lines, "", total])


def _differences(row: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    difference = row["difference"]
    if difference is not None:
        lines.append(f"  first {row['equal_steps']:,} steps equal; step {difference['step']} (from 0):")
        lines += _pairs(difference["columns"])
        lines += _pairs({f"tokens of {id}": pair for id, pair in difference["scheduled"].items()})
        for side, ids in zip(("recorded", "simulated"), difference["preempted"], strict=True):
            if ids:
                listed = f"    preempted only as {side}: {', '.join(ids)}"
                lines += textwrap.wrap(listed, WIDTH, subsequent_indent=" " * 6)
    for request in row["requests"][:SHOWN_REQUESTS]:
        lines.append(f"  all steps equal, but not the result of request {request['id']}:")
        lines += _pairs(request["fields"])
    hidden = len(row["requests"]) - SHOWN_REQUESTS
    return lines + ([f"  and {hidden} more requests (all with --json)"] if hidden > 0 else [])


def _pairs(pairs: Mapping[str, Pair]) -> list[str]:
    return [
        f"    {name:<26} recorded {_side(recorded):>12}   simulated {_side(simulated):>12}"
        for name, (recorded, simulated) in pairs.items()
    ]


def _side(value: object) -> str:
    return "-" if value is None else str(value)

"""A measurement as text: the engine, what was run, how noisy the machine was, and what else was timed."""

import statistics
from typing import Any

from rollsim.calibration.server_measurement import LEVEL
from rollsim.calibration.sweep import REFERENCE
from rollsim.simulator.wording import wrap

_NOT_SEEN = (
    "What a server does not show: the requests, tokens and KV of a step, preemptions, host time, and the costs of "
    "aborts, reloads and speculation. An engine in this process does: give MODEL instead of URL."
)


def text(document: dict[str, Any]) -> str:
    """Lay out the document of `rollsim.calibration.measure.summary`, or of that of a server."""
    if document.get("level") == LEVEL:
        return "\n".join([*_head(document), "", *_asked(document)])
    return "\n".join([*_head(document), "", *_batches(document), "", *_noise(document), "", *_extras(document)])


def _head(document: dict[str, Any]) -> list[str]:
    engine, model, device, limits = (document[key] for key in ("engine", "model", "device", "limits"))
    parameters = model.get("parameters")
    size = f", {parameters / 1e6:,.0f} M parameters" if parameters else ""
    return [
        (
            f"{engine['name']} {engine['version']} ({engine['build']}), {engine['scheduling']} scheduling, on "
            f"{device['name']}"
        ),
        f"{model['name']}: {model['layers']} layers, {model['dtype']}{size}" if model["layers"] else model["name"],
        (
            f"up to {limits['max_num_seqs']:,} requests, {limits['max_num_batched_tokens']:,} tokens per step, "
            f"{limits['num_blocks']:,} KV blocks of {limits['block_size']}"
        ),
    ]


def _asked(document: dict[str, Any]) -> list[str]:
    """Batches of a server, as its clients see them, and what cannot be told from there."""
    rows = document["batches"]
    width = max(len(row["name"]) for row in rows)
    lines = [f"{'batch':<{width}}  {'role':<9}  {'requests':>8} {'runs':>5} {'seconds':>9}"]
    lines += [
        f"{row['name']:<{width}}  {row['role']:<9}  {row['requests']:>8,} {row['repeats']:>5} "
        f"{statistics.median(row['wall_s']):>9.3f}"
        for row in rows
    ]
    lines += ["", f"{len(rows)} of {document['planned']} batches, {document['spent_s']:.0f} s"]
    reference = next((row["wall_s"] for row in rows if row["name"] == REFERENCE), [])
    if len(reference) > 1:
        spread = statistics.stdev(reference) / statistics.mean(reference)
        lines.append(f"noise: {len(reference)} runs of the reference batch spread by {spread:.1%}")
    lines.append(f"this client was busy for up to {max(row['client_share'] for row in rows):.0%} of a run")
    if document["assumed"]:
        lines += wrap(f"assumed, for the server does not tell: {', '.join(document['assumed'])}")
    return [*lines, *wrap(_NOT_SEEN)]


def _batches(document: dict[str, Any]) -> list[str]:
    rows = document["batches"]
    clock = document["clock"]
    width = max(len(row["name"]) for row in rows)
    title = f"{clock} ms/step"
    lines = [f"{'batch':<{width}}  {'role':<9}  {'steps':>6} {'preempted':>9} {'runs':>5} {title:>13}"]
    for row in rows:
        step_ms = 1e3 * statistics.median(row[f"{clock}_s"]) / row["steps"]
        lines.append(
            f"{row['name']:<{width}}  {row['role']:<9}  {row['steps']:>6,} {row['preemptions']:>9,} "
            f"{row['repeats']:>5} {step_ms:>13.2f}"
        )
    steps = sum(row["steps"] * row["repeats"] for row in rows)
    return [*lines, "", f"{len(rows)} of {document['planned']} batches, {steps:,} steps, {document['spent_s']:.0f} s"]


def _noise(document: dict[str, Any]) -> list[str]:
    """Spread of the reference batch, and runs that took other steps than the first."""
    lines = [f"FAULT {fault}" for fault in document["faults"]]
    reference = next((row for row in document["batches"] if row["name"] == REFERENCE), None)
    if reference is not None and reference["repeats"] > 1:
        spreads = [
            f"{clock} {statistics.stdev(times) / statistics.mean(times):.1%}"
            for clock in ("wall", "cpu")
            if (times := reference[f"{clock}_s"])
        ]
        lines.append(f"noise: {reference['repeats']} runs of the reference batch spread by {', '.join(spreads)}")
    return lines


def _extras(document: dict[str, Any]) -> list[str]:
    lines = []
    for name, timing in document["extras"].items():
        if "not_timed" in timing:
            lines.append(f"{name}: not timed: {timing['not_timed']}")
        else:
            shown = ", ".join(f"{key[:-2]} {value * 1e3:.1f} ms" for key, value in timing.items() if key.endswith("_s"))
            lines.append(f"{name}: {shown}")
    return lines

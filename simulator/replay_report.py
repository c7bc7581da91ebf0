"""The document of a replay as text of at most 80 columns. Every section says what its numbers are."""

import textwrap
from typing import Any

WIDTH = 80
_BAR = "▏▎▍▌▋▊▉█"
_GRADES = ("measured", "fitted", "predicted", "computed", "assumed", "extrapolated")


def text(document: dict[str, Any], wall_s: float | None = None) -> str:
    """Lay out a document of `replay_run`; `wall_s` is how long the simulation took."""
    sections = (_inputs, _answer, _latency, _over_time, _tail, _ledger, _trust)
    lines = [line for section in sections for line in section(document)]
    if wall_s is not None:
        counts = f"{document['steps']:,} engine steps as {document['events']:,} events"
        lines += ["", f"Simulated {counts} in {wall_s:.2f} s."]
    return "\n".join(line.rstrip() for line in lines)


def _inputs(document: dict[str, Any]) -> list[str]:
    trace, profile, engine = document["trace"], document["profile"], document["engine"]
    limits = engine["limits"]
    groups = f" in {trace['groups']:,} groups" if trace["groups"] else ""
    last_s = trace["last_arrival_s"]
    arrivals = f"arriving until {_number(last_s)} s" if last_s > 0 else "all at 0 s"
    kv_tokens = limits["num_blocks"] * limits["block_size"]
    rows = {
        "trace": f"{trace['path']}: {trace['requests']:,} requests{groups}, {arrivals}; "
        f"{_si(trace['prompt_tokens'])} prompt and {_si(trace['output_tokens'])} output tokens",
        "engine": f"{engine['replicas']} x {profile['model']} {profile['dtype']} on {profile['gpu']}, tp "
        f"{profile['tp']} ({engine['gpus']} GPUs); rules of {engine['name']} {engine['rules_version']}",
        "limits": ", ".join(_limits(limits)),
        "KV": f"{limits['num_blocks']:,} blocks = {_si(kv_tokens)} tokens per replica; {engine['kv_how']}",
    }
    notes = [line for note in trace["notes"] + engine["notes"] for line in _pair("note", note)]
    return [line for name, value in rows.items() for line in _pair(name, value)] + notes


def _limits(limits: dict[str, Any]) -> list[str]:
    numbers = ["max_num_seqs", "max_num_batched_tokens", "max_model_len"]
    if limits["long_prefill_token_threshold"]:
        numbers.append("long_prefill_token_threshold")
    switches = {"prefix_caching": "prefix caching", "chunked_prefill": "chunked prefill"}
    return [
        *(f"{name} {limits[name]:,}" for name in numbers),
        *(f"{words} {'on' if limits[name] else 'off'}" for name, words in switches.items()),
        limits["policy"],
        "asynchronous scheduling" if limits["async_scheduling"] else "synchronous scheduling",
    ]


def _answer(document: dict[str, Any]) -> list[str]:
    kpis, bias = document["kpis"], document["bias"]
    lines = ["", f"{'ANSWER':<22}{'predicted':>11}"]
    if bias is None:
        lines[-1] += "   the source's bias is not known"
    else:
        lines[-1] += f"  with known bias{'fast':>10}{'median':>10}{'slow':>10}"
    for what, key in (("makespan, s", "makespan_s"), ("output tokens per s", "output_tokens_per_s")):
        known = [] if bias is None else [bias[key][name] for name in ("low", "median", "high")]
        cells = "".join(f"{_number(value):>10}" for value in known)
        lines.append(f"{what:<22}{_number(kpis[key]):>11}{'':>17}{cells}")
    recomputed = _si(kpis["recomputed_tokens"])
    lines += [
        f"{'  per GPU':<22}{_number(kpis['output_tokens_per_gpu_s']):>11}",
        f"{'requests per s':<22}{_number(kpis['requests_per_s']):>11}",
        f"{'prompt tokens cached':<22}{_percent(kpis['cached_share']):>11}",
        f"{'preemptions':<22}{kpis['preemptions']:>11,}  of {kpis['preempted_trajectories']:,} requests",
        f"{'tokens recomputed':<22}{recomputed:>11}  {_percent(kpis['recomputed_share'])} of all tokens prefilled",
    ]
    if kpis["truncated"]:
        lines.append(f"{'cut at max_model_len':<22}{kpis['truncated']:>11,}  requests")
    return lines


def _latency(document: dict[str, Any]) -> list[str]:
    kpis = document["kpis"]
    lines = ["", f"{'LATENCY, predicted':<24}{'mean':>9}{'P50':>9}{'P95':>9}{'P99':>9}{'max':>9}{'n':>10}"]
    rows = (
        ("first token, s", "first_token_s", 1),
        ("completion, s", "completion_s", 1),
        ("queue, s", "queue_s", 1),
        ("per output token, ms", "per_output_token_s", 1e3),
    )
    refused = False
    for what, key, factor in rows:
        spread = kpis[key]
        percentiles = spread["percentiles"].values()
        values = [spread["mean"], *percentiles, spread["max"]]
        refused |= any(value is None for value in percentiles)
        cells = "".join(f"{'-' if value is None else _number(value * factor):>9}" for value in values)
        lines.append(f"{what:<24}{cells}{spread['n']:>10,}")
    return lines + (["-: n too small, a percentile needs 1 / (1 - q) requests"] if refused else [])


def _over_time(document: dict[str, Any]) -> list[str]:
    slices, replicas = document["timeline"], document["engine"]["replicas"]
    if not slices:
        return []
    top = max(part["running"] for part in slices)
    digits = max(0, 4 - len(str(int(slices[-1]["t1_s"]))))
    head = f"{'OVER TIME, predicted':<22}{'batch per replica':<20}{'KV used':<20}{'waiting':>8}{'preempted':>10}"
    lines = ["", head]
    for part in slices:
        batch = part["running"] / replicas
        lines.append(
            f"{part['t0_s']:>8,.{digits}f} - {part['t1_s']:>8,.{digits}f} s "
            f"{_number(batch):>6} {_bar(part['running'], top, 11):<12}"
            f"{_percent(part['kv_share']):>6} {_bar(part['kv_share'], 1.0, 12):<13}"
            f"{_number(part['waiting']):>7}{part['preemptions']:>10,}"
        )
    return [*lines, "Means of each slice; waiting and preempted (so far) are sums over the replicas."]


def _tail(document: dict[str, Any]) -> list[str]:
    tail = document["kpis"]["tail"]
    if tail is None or tail["running_mean"] is None:
        return []
    share = _percent(_share(tail["output_tokens"], document["kpis"]["output_tokens"]))
    body = (
        f"The last 10 % of the requests end in the last {_number(tail['seconds'])} s, {_percent(tail['share'])} of the "
        f"makespan, at a mean batch of {_number(tail['running_mean'])} per replica: "
        f"{_si(tail['output_tokens'])} output tokens, {share} of all."
    )
    return ["", "TAIL, predicted", *_wrap(body)]


def _ledger(document: dict[str, Any]) -> list[str]:
    kpis = document["kpis"]
    lines = ["", f"{'GPU TIME, predicted':<44}{'GPU-s':>10}{'share':>8}"]
    for row in kpis["ledger"]:
        if row["gpu_s"] > 0:
            cause = f": {row['cause']}" if row["cause"] else ""
            name = f"{row['category'].replace('_', ' ')}{cause}"
            bar = _bar(row["share"], 1.0, 16)
            lines.append(f"{name:<44}{_number(row['gpu_s']):>10}{_percent(row['share']):>8} {bar}")
    return [*lines, f"{'all':<44}{_number(kpis['gpu_s']):>10}{_percent(1.0):>8}"]


def _trust(document: dict[str, Any]) -> list[str]:
    profile, bias = document["profile"], document["bias"]
    lines = ["", "WHAT THIS RESTS ON"]
    lines += _pair("order", "what runs, waits and is preempted in each step: the engine's rules, not a fit")
    for grade in _GRADES:
        parts = [claim["part"] for claim in document["claims"] if claim["grade"] == grade]
        if parts:
            lines += _pair(grade, "; ".join(parts))
    for outside in document["outside_range"]:
        lines += _pair("OUTSIDE", outside)
    if not document["outside_range"]:
        lines += _pair("range", "all of this run lies inside the fitted range")
    if bias is None:
        lines += _pair("bias", "none known: the source has no measured end-to-end points for this engine")
    else:
        lines += _pair(
            "bias",
            f"real times are {bias['low']:.2f} to {bias['high']:.2f} x the simulated (P10 to P90), median "
            f"{bias['median']:.2f} x; {bias['n']} measured points ({bias['match']}): {bias['origin']}",
        )
    for caution in profile["cautions"]:
        lines += _pair("caution", caution)
    source = f"{profile['name']}, from {profile['source']}; the rest: `rollsim profiles show`"
    return lines + _pair("profile", source)


def _pair(name: str, value: str) -> list[str]:
    return _wrap(f"{name:<13}{value}", indent=13)


def _wrap(line: str, indent: int = 0) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)


def _bar(value: float, top: float, cells: int) -> str:
    """Draw a bar of at most so many cells, in eighths."""
    eighths = round(8 * cells * value / top) if top > 0 else 0
    whole, rest = divmod(min(max(eighths, 1 if value > 0 else 0), 8 * cells), 8)
    return _BAR[-1] * whole + (_BAR[rest - 1] if rest else "")


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    """Four digits or so: 0.01234, 1.234, 12.34, 123.4, 12,345."""
    if not value:
        return "-" if value is None else "0"
    for bound, digits in ((0.9995, 4), (9.995, 3), (99.95, 2), (999.5, 1)):
        if abs(value) < bound:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def _si(count: int) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {letter}" if count < 999.5 * size else f"{count / size:,.0f} {letter}"
    return str(count)

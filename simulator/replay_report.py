"""The document of a replay as text of at most 80 columns. Every section says what its numbers are."""

from typing import Any

from rollsim.simulator.wording import bar, number, pair, percent, plural, si, wrap

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
    groups = f" in {plural(trace['groups'], 'group')}" if trace["groups"] else ""
    first_s, last_s = trace["first_arrival_s"], trace["last_arrival_s"]
    arrivals = f"all at {number(last_s)} s"
    if last_s > first_s:
        arrivals = (
            f"arriving until {number(last_s)} s"
            if first_s == 0
            else f"arriving {number(first_s)} to {number(last_s)} s"
        )
    kv_tokens = limits["num_blocks"] * limits["block_size"]
    rows = {
        "trace": f"{trace['path']}: {plural(trace['requests'], 'request')}{groups}, {arrivals}; "
        f"{si(trace['prompt_tokens'])} prompt and {si(trace['output_tokens'])} output tokens",
        "engine": f"{engine['replicas']} x {profile['model']} {profile['dtype']} on {profile['gpu']}, tp "
        f"{profile['tp']} ({plural(engine['gpus'], 'GPU')}); rules of {engine['rules']}",
        "limits": ", ".join(_limits(limits)),
        "KV": f"{limits['num_blocks']:,} blocks = {si(kv_tokens)} tokens per replica; {engine['kv_how']}",
    }
    notes = [line for note in trace["notes"] + engine["notes"] for line in pair("note", note)]
    return [line for name, value in rows.items() for line in pair(name, value)] + notes


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
        cells = "".join(f"{number(value):>10}" for value in known)
        lines.append(f"{what:<22}{number(kpis[key]):>11}{'':>17}{cells}")
    recomputed, preempted = si(kpis["recomputed_tokens"]), f"{kpis['preempted_trajectories']:,}"
    lines += [
        f"{'  per GPU':<22}{number(kpis['output_tokens_per_gpu_s']):>11}",
        f"{'requests per s':<22}{number(kpis['requests_per_s']):>11}",
        f"{'prompt tokens cached':<22}{percent(kpis['cached_share']):>11}",
        f"{'preemptions':<22}{kpis['preemptions']:>11,}  in {preempted} of {kpis['trajectories']:,} requests",
        f"{'tokens recomputed':<22}{recomputed:>11}  {percent(kpis['recomputed_share'])} of all tokens prefilled",
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
        cells = "".join(f"{'-' if value is None else number(value * factor):>9}" for value in values)
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
            f"{number(batch):>6} {bar(part['running'], top, 11):<12}"
            f"{percent(part['kv_share']):>6} {bar(part['kv_share'], 1.0, 12):<13}"
            f"{number(part['waiting']):>7}{part['preemptions']:>10,}"
        )
    return [*lines, "Means of each slice; waiting and preempted (so far) are sums over the replicas."]


def _tail(document: dict[str, Any]) -> list[str]:
    tail = document["kpis"]["tail"]
    if tail is None or tail["running_mean"] is None:
        return []
    share = percent(_share(tail["output_tokens"], document["kpis"]["output_tokens"]))
    body = (
        f"The last 10 % of the requests end in the last {number(tail['seconds'])} s, {percent(tail['share'])} of the "
        f"makespan, at a mean batch of {number(tail['running_mean'])} per replica: "
        f"{si(tail['output_tokens'])} output tokens, {share} of all."
    )
    return ["", "TAIL, predicted", *wrap(body)]


def _ledger(document: dict[str, Any]) -> list[str]:
    kpis = document["kpis"]
    lines = ["", f"{'GPU TIME, predicted':<44}{'GPU-s':>10}{'share':>8}"]
    for row in kpis["ledger"]:
        if row["gpu_s"] > 0:
            cause = f": {row['cause']}" if row["cause"] else ""
            name = f"{row['category'].replace('_', ' ')}{cause}"
            drawn = bar(row["share"], 1.0, 16)
            lines.append(f"{name:<44}{number(row['gpu_s']):>10}{percent(row['share']):>8} {drawn}")
    return [*lines, f"{'all':<44}{number(kpis['gpu_s']):>10}{percent(1.0):>8}"]


def _trust(document: dict[str, Any]) -> list[str]:
    profile, bias = document["profile"], document["bias"]
    lines = ["", "WHAT THIS RESTS ON"]
    lines += pair("order", "what runs, waits and is preempted in each step: the engine's rules, not a fit")
    for grade in _GRADES:
        parts = [claim["part"] for claim in document["claims"] if claim["grade"] == grade]
        if parts:
            lines += pair(grade, "; ".join(parts))
    for outside in document["outside_range"]:
        lines += pair("OUTSIDE", outside)
    if not document["outside_range"]:
        lines += pair("range", "all of this run lies inside the fitted range")
    if bias is None:
        lines += pair("bias", "none known: the source has no measured end-to-end points for this engine")
    else:
        lines += pair(
            "bias",
            f"real times are {bias['low']:.2f} to {bias['high']:.2f} x the simulated (P10 to P90), median "
            f"{bias['median']:.2f} x; {bias['n']} measured points ({bias['match']}): {bias['origin']}",
        )
    for caution in profile["cautions"]:
        lines += pair("caution", caution)
    source = f"{profile['name']}, from {profile['source']}; the rest: `rollsim profiles show`"
    return lines + pair("profile", source)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None

"""A profile in words and numbers: one line for a list, or all of it, as data and as text of at most 80 columns."""

import textwrap
from collections.abc import Iterable
from typing import Any

from rollsim.simulator.costs import StepCost
from rollsim.simulator.profile import BiasBand, Profile
from rollsim.simulator.profile_parts import Errors
from rollsim.simulator.wording import si

WIDTH = 80
LIST_CONTEXT_TOKENS = 4096
LIST_BATCHES = (1, 64)
SHOWN_CONTEXTS = (1024, 4096, 16384, 32768)


def decode_ms(cost: StepCost, batch: int, context_tokens: int) -> float:
    """Milliseconds of a decode step of so many sequences of one length."""
    kv_tokens = batch * cost.kv_tokens_read(context_tokens)
    return 1e3 * cost.step_s(batch, True, [(batch, kv_tokens, 0.0)])


def summary(profile: Profile) -> dict[str, Any]:
    """Return the figures of one line of a list."""
    cost = profile.step_cost(profile.limits())
    return {
        "name": profile.name,
        "model": profile.model.hf_name,
        "gpu": profile.gpu.name,
        "tp": profile.parallelism.tp,
        "dtype": profile.model.dtype,
        "kv_blocks": profile.kv.num_blocks,
        "kv_tokens": profile.kv_tokens,
        "decode_ms": {
            f"batch {b}, context {LIST_CONTEXT_TOKENS}": round(decode_ms(cost, b, LIST_CONTEXT_TOKENS), 3)
            for b in LIST_BATCHES
        },
        "fit_error": {
            "median": profile.fit.decode.median,
            "p99": profile.fit.decode.p99,
            "worst": profile.fit.decode.worst,
        },
        "bias": profile.bias.model_dump() if profile.bias else None,
        "cautions": list(profile.cautions),
    }


def list_text(summaries: list[dict[str, Any]]) -> str:
    """Table of profiles; the name holds model, GPU, tensor-parallel size and precision."""
    width = max(28, *(len(row["name"]) for row in summaries))
    head = f"{'profile':<{width}}{'KV tokens':>11}{'ms @1':>7}{'ms @64':>8}{'fit P99':>9}{'bias':>7}"
    lines = [head, "-" * len(head)]
    for row in summaries:
        one, many = row["decode_ms"].values()
        bias = row["bias"]
        known = (
            "none" if bias is None else f"{bias['median']:+.0%}{'*' if bias['match'].startswith('stand-in') else ' '}"
        )
        mark = " !" if row["cautions"] else ""
        lines.append(
            f"{row['name']:<{width}}{row['kv_tokens']:>11,}{one:>7.1f}{many:>8.1f}{row['fit_error']['p99']:>9.1%}"
            f"{known:>7}{mark}"
        )
    lines += [
        "",
        "ms @1, @64: decode step at that batch size, context 4,096.",
        "fit P99: error of the fit on its own rows.  bias: median of predicted against",
        "measured end-to-end times, < 0 is too fast; * measured on a stand-in model.",
        "!: has a caution.  All of a profile: rollsim profiles show NAME",
    ]
    return "\n".join(lines)


def band_text(band: BiasBand | None) -> list[str]:
    """Say the bias band in words."""
    if band is None:
        return ["none: the source has no measured end-to-end points for this engine"]
    return [
        f"real times are {band.low:.2f} to {band.high:.2f} x the simulated (P10 to P90), median {band.median:.2f} x",
        f"from {band.n} measured points ({band.match}): {band.origin}",
    ]


def show_text(profile: Profile) -> str:
    """All of a profile, readable."""
    sections = (_head, _decode, _prefill, _fit, _trust, _claims)
    return "\n".join(
        [profile.name, "=" * len(profile.name), *(line for section in sections for line in section(profile))]
    )


def _head(profile: Profile) -> list[str]:
    model, defaults, kv, ranks = profile.model, profile.defaults, profile.kv, profile.parallelism
    graphs = max(profile.graph_sizes(profile.limits()), default=0)
    return _pairs(
        {
            "model": f"{model.hf_name}, {si(model.parameters)} parameters, {model.layers} layers, "
            f"hidden {model.hidden}, {model.heads} heads, {model.kv_heads} KV heads of {model.head_dim}; "
            f"weights {model.dtype}, KV {model.kv_dtype}. {model.note}".strip(),
            "GPU": f"{profile.gpu.name}, {profile.gpu.memory_gib} GiB; tp {ranks.tp}, ep {ranks.ep}, "
            f"{ranks.lockstep_ranks} lockstep rank(s)",
            "engine": f"{profile.engine.name}: kernels of {profile.engine.timed_version}, rules of "
            f"{profile.engine.rules}, {profile.scheduling}hronous scheduling",
            "limits": f"max_num_seqs {defaults.max_num_seqs}, max_num_batched_tokens {defaults.max_num_batched_tokens} "
            f"(server {defaults.server_max_num_batched_tokens}), block_size {defaults.block_size}, "
            f"max_model_len {defaults.max_model_len}, CUDA graphs up to {graphs} tokens",
            "KV": f"{kv.num_blocks:,} blocks = {profile.kv_tokens:,} tokens per rank, {kv.bytes_per_token:,} bytes a "
            f"token; {kv.obtained}: {kv.how}",
            "host": f"{profile.costs.host_s * 1e3:g} ms per step",
        }
    )


def _decode(profile: Profile) -> list[str]:
    cost, table, contexts = profile.step_cost(profile.limits()), profile.costs.decode, SHOWN_CONTEXTS
    lines = ["", "Decode step, ms, by batch (rows) and context (columns)", ""]
    lines.append(f"{'batch':>8}{'dense':>10}{'ns/KV tok':>11}" + "".join(f"{context:>10,}" for context in contexts))
    for batch, dense_s, read_s in zip(table.batch, table.dense_s, table.kv_read_s, strict=True):
        cells = [
            f"{decode_ms(cost, batch, context):>10.2f}" if batch * context <= profile.kv_tokens else f"{'-':>10}"
            for context in contexts
        ]
        lines.append(f"{batch:>8}{dense_s * 1e3:>10.3f}{read_s * 1e9:>11.2f}" + "".join(cells))
    return lines


def _prefill(profile: Profile) -> list[str]:
    table = profile.costs.prefill
    return [
        "",
        f"Prefill step, ms: dense by tokens, + {table.attn_s * 1e12:.1f} ps per token pair",
        "",
        "".join(f"{tokens:>9,}" for tokens in table.tokens),
        "".join(f"{dense_s * 1e3:>9.2f}" for dense_s in table.dense_s),
    ]


def _fit(profile: Profile) -> list[str]:
    fit = profile.fit
    return [
        "",
        "Fit error (predicted against table)",
        "",
        f"{'':<38}{'n':>4}{'median':>9}{'P99':>8}{'worst':>8}{'signed':>9}",
        _errors("decode", fit.decode),
        *(_errors(f"  {name}", value) for name, value in fit.decode_regions.items()),
        _errors("prefill, shared token counts", fit.prefill),
        *(_errors(name, value) for name, value in fit.held_out.items()),
        "",
        "P99 is the nearest rank. 'left out': rows not fitted to.",
    ]


def _trust(profile: Profile) -> list[str]:
    fit, fitted, source = profile.fit, profile.fitted_range, profile.source
    lines = _pairs(
        {
            "fitted range": f"decode batch {_ends(fitted.decode_batch)}, "
            f"context {_ends(fitted.decode_context_tokens)}, KV read {_ends(fitted.decode_kv_tokens)} tokens; "
            f"prefill {_ends(fitted.prefill_tokens)} tokens, prompts {_ends(fitted.prefill_context_tokens)}",
            "rows": f"{fit.rows_used} used, {fit.rows_dropped} dropped (their KV does not fit)",
            "join": f"prefill over decode time at {profile.costs.prefill.tokens[0]} tokens: {fit.join_gap:+.1%}",
            "source": f"{source.name}; {source.license}; {source.file}",
            "known bias": "; ".join(band_text(profile.bias_band())),
        }
    )
    return lines + [line for caution in profile.cautions for line in _pairs({"caution": caution})]


def _claims(profile: Profile) -> list[str]:
    lines = ["", "What rests on what", ""]
    for claim in profile.claims:
        text = f"{claim.grade:<13}{claim.part}: {claim.how}"
        lines += textwrap.wrap(text, WIDTH, subsequent_indent=" " * 13, break_long_words=False)
    return lines


def _pairs(values: dict[str, str]) -> list[str]:
    indent = " " * 14
    return [
        line
        for key, value in values.items()
        for line in textwrap.wrap(f"{key:<14}{value}", WIDTH, subsequent_indent=indent, break_long_words=False)
    ]


def _errors(name: str, e: Errors) -> str:
    return f"{name:<38}{e.n:>4}{e.median:>9.1%}{e.p99:>8.1%}{e.worst:>8.1%}{e.signed_median:>+9.1%}"


def _ends(values: Iterable[int]) -> str:
    return " to ".join(f"{value:,}" for value in values)

"""`rollsim laws`: length laws that a config can name."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from rollsim.cli.console import Json, emit, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rollsim.simulator.length_law import Evidence, LengthLaw

app = typer.Typer(help="Length laws: how long responses are, and what that rests on.", no_args_is_help=True)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the shipped laws.

    \b
    rollsim laws list
    """  # noqa: D301 - \b keeps click from wrapping the example
    from rollsim.simulator.law_store import list_laws, load_law

    found = [_summary(load_law(name)) for name in list_laws()]
    columns = ("law", ">P50", ">P95", ">cap", ">at the cap", ">prompt's share")
    formats = ("{}", "{:,.0f}", "{:,.0f}", "{:,}", "{:.1%}", "{:.0%}")
    rows = [[shown.format(value) for shown, value in zip(formats, summary.values(), strict=True)] for summary in found]
    emit({"laws": found}, as_json, lambda: [table(columns, rows)])


@app.command("show")
def show(
    law: Annotated[str, typer.Argument(metavar="LAW", help="Name of a shipped law, or a file.")],
    as_json: Json = False,
) -> None:
    """Show a law: its parameters, the numbers it was fitted to and those held out, with the errors.

    \b
    rollsim laws show rollpacker-math-14b
    """  # noqa: D301 - \b keeps click from wrapping the example
    from rollsim.simulator.law_store import load_law

    loaded = load_law(law)
    emit(loaded.model_dump(mode="json"), as_json, lambda: _shown(loaded))


def _summary(law: "LengthLaw") -> dict[str, object]:
    from rollsim.simulator.lengths import Lengths

    lengths = Lengths(law)
    return {
        "name": law.name,
        "p50_tokens": float(lengths.quantile(0.5)),
        "p95_tokens": float(lengths.quantile(0.95)),
        "cap_tokens": law.cap_tokens,
        "cap_share": lengths.cap_share(),
        "prompt_share": law.prompt_share,
    }


def _shown(law: "LengthLaw") -> Iterable["RenderableType"]:
    yield table(("", ""), _parameters(law))
    if law.evidence is not None:
        yield from _evidence(law.evidence)


def _parameters(law: "LengthLaw") -> Iterable[list[str]]:
    yield ["title", law.title]
    yield ["cap", f"{law.cap_tokens:,} tokens, which {_summary(law)['cap_share']:.2%} of the responses reach"]
    for part in law.body:
        yield ["body", f"{part.weight:.1%} lognormal, median {part.median_tokens:,.0f}, sigma {part.sigma:.3g}"]
    yield ["runaways", f"{law.runaway_share:.2%}, besides what of the body lies above the cap"]
    yield ["prompt's share", f"{law.prompt_share:.1%} of the variance of the scores"]
    for knot in law.drift:
        yield ["drift", f"x {knot.factor:g} at version {knot.version}"]
    rate = law.pass_rate
    if rate is None:
        yield ["pass rate", "not modelled: rewards are unknown"]
        return
    ends = f"never {rate.never_share:.0%}, always {rate.always_share:.0%}"
    yield ["pass rate", f"Beta({rate.a:.3g}, {rate.b:.3g}), {ends}"]
    correlations = f"{rate.prompt_correlation:+.2f} of prompts, {rate.sample_correlation:+.2f} within"
    yield ["correlation", f"with length: {correlations}"]


def _evidence(evidence: "Evidence") -> Iterable["RenderableType"]:
    words = {True: "fitted", False: "held out"}
    quantiles = [
        [
            f"P{100 * q.share:g}",
            f"{q.tokens:,.0f}",
            f"{q.tokens * (1 + q.error):,.0f}",
            f"{q.error:+.1%}",
            words[q.used],
        ]
        for q in evidence.quantiles
    ]
    yield table(("quantile", ">published", ">law", ">error", ""), quantiles)
    others = [[o.what, _number(o.published), _number(o.law), words[o.used]] for o in evidence.observations]
    if others:
        yield table(("number", ">published", ">law", ""), others)
    count = "not published" if evidence.n is None else f"{evidence.n:,}"
    low, high = evidence.fitted_range_tokens
    rests = [
        ["source", evidence.source],
        ["license", evidence.license],
        ["n", "; ".join(filter(None, (count, evidence.n_note)))],
        ["range", f"fitted from {low:,.0f} to {high:,.0f} tokens; beyond, the body is extrapolated"],
        *(["parameters", line] for line in evidence.free_parameters),
        *([claim.grade, f"{claim.part}: {claim.how}"] for claim in evidence.claims),
        *(["caution", caution] for caution in evidence.cautions),
    ]
    yield table(("", ""), rests)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

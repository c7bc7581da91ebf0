"""`rollsim laws`: length laws that a config can name."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from rollsim.cli.console import Json, emit, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rollsim.simulator.length_law import LengthLaw

app = typer.Typer(help="Length laws: how long responses are, and what that rests on.", no_args_is_help=True)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the shipped laws.

    \b
    rollsim laws list
    """  # noqa: D301 - \b keeps click from wrapping the example
    from rollsim.simulator.law_store import list_laws, load_law
    from rollsim.simulator.lengths import Lengths

    laws = [load_law(name) for name in list_laws()]
    rows = [
        [law.name, *(f"{float(Lengths(law).quantile(share)):,.0f}" for share in (0.5, 0.95)),
         f"{law.cap_tokens:,}", f"{Lengths(law).cap_share():.1%}", f"{law.prompt_share:.0%}"]
        for law in laws
    ]  # fmt: skip
    columns = ("law", ">P50", ">P95", ">cap", ">at the cap", ">prompt's share")
    emit({law.name: law.model_dump(mode="json") for law in laws}, as_json, lambda: [table(columns, rows)])


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


def _shown(law: "LengthLaw") -> Iterable["RenderableType"]:
    head = [["title", law.title], ["cap", f"{law.cap_tokens:,} tokens"]]
    head += [
        ["body", f"{part.weight:.1%} lognormal, median {part.median_tokens:,.0f}, sigma {part.sigma:.3g}"]
        for part in law.body
    ]
    head.append(["runaways", f"{law.runaway_share:.2%}, besides what of the body lies above the cap"])
    head.append(["prompt's share", f"{law.prompt_share:.1%} of the variance of the scores"])
    if law.pass_rate is not None:
        rate = law.pass_rate
        head.append(["pass rate", f"Beta({rate.a:.3g}, {rate.b:.3g}), never {rate.never_share:.0%}"])
        head.append(
            [
                "correlation",
                f"with length: {rate.prompt_correlation:+.2f} of prompts, {rate.sample_correlation:+.2f} within",
            ]
        )
    yield table(("", ""), head)
    evidence = law.evidence
    if evidence is None:
        return
    quantiles = [
        [f"P{100 * q.share:g}", f"{q.tokens:,.0f}", f"{q.error:+.1%}", "fitted" if q.used else "held out"]
        for q in evidence.quantiles
    ]
    yield table(("quantile", ">published", ">law", ""), quantiles)
    others = [
        [o.what, f"{o.published:,.4g}", f"{o.law:,.4g}", "fitted" if o.used else "held out"]
        for o in evidence.observations
    ]
    if others:
        yield table(("number", ">published", ">law", ""), others)
    rests = [
        ["source", evidence.source],
        ["licence", evidence.license],
        ["n", f"{evidence.n or 'not published'} {evidence.n_note}"],
    ]
    rests += [[claim.grade, f"{claim.part}: {claim.how}"] for claim in evidence.claims]
    rests += [["caution", caution] for caution in evidence.cautions]
    yield table(("", ""), rests)

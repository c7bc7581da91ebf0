"""The fit of a length law as text, 80 columns wide."""

from collections.abc import Iterator
from typing import Any

from rollsim.simulator.wording import number, percent, wrap


def text(said: dict[str, Any]) -> str:
    """Lay out the document of `rollsim.calibration.length_fit.fit_lengths`, with ``extras`` in it."""
    return "\n".join(_lines(said))


def _lines(said: dict[str, Any]) -> Iterator[str]:
    cut = f", {percent(said['cut_share'])} of them cut" if said["cut_share"] else ", none of them cut"
    yield from wrap(f"{said['source']}: {said['responses']:,} responses to {said['prompts']:,} prompts{cut}")
    yield ""
    yield f"{'family':<22}{'parameters':>11}{'log L: fitted':>15}{'held out':>11}{'BIC':>13}"
    for row in said["candidates"]:
        mark = " *" if row["name"] == said["chosen"] else ""
        scores = f"{row['fitted']:>15.4f}{row['held_out']:>11.4f}{row['bic']:>13,.0f}"
        yield f"{row['name'] + mark:<22}{row['parameters']:>11}{scores}"
    yield from wrap(
        "Log-likelihoods are of a response, families fitted to one half of the prompts. * the simplest mixture of "
        "lognormals within a standard error of the best of them."
    )
    if said["best"] != said["chosen"]:
        yield from wrap(f"The best, {said['best']}, is better by {said['behind_best']:.4f} a response.")
    yield ""
    yield f"{'held-out prompts':<17}{'law':>9}{'seen':>9}{'90 % interval':>22}{'error':>9}"
    for row in said["held_out"]:
        shown = percent if row["what"] == "share cut" else number
        interval = f"{shown(row['low'])} to {shown(row['high'])}"
        error = "" if row["error"] is None else f"{row['error']:+.1%}"
        marks = f" {'' if row['inside'] else '!':<2}{'too few' if row['too_few'] else ''}".rstrip()
        yield f"{row['what']:<17}{shown(row['law']):>9}{shown(row['seen']):>9}{interval:>22}{error:>9}{marks}"
    yield from wrap(
        "The law of one half beside the other half; ! outside its interval. The law that is written is fitted to all."
    )
    yield ""
    yield from _law(said["law"])
    yield from _extras(said["extras"])
    for note in said["notes"]:
        yield from wrap(f"note: {note}", indent=6)
    for caution in said["law"]["evidence"].get("cautions", ()):
        if caution not in said["notes"]:
            yield from wrap(f"note: {caution}", indent=6)


def _law(law: dict[str, Any]) -> Iterator[str]:
    for part in law["body"]:
        shape = f"median {part['median_tokens']:,.0f}, sigma {part['sigma']:.3g}"
        yield f"body            {part['weight']:.1%} lognormal, {shape}"
    yield f"runaways        {law['runaway_share']:.2%}; cap {law['cap_tokens']:,} tokens"
    yield f"prompt's share  {law['prompt_share']:.1%} of the variance of the scores"
    if (rate := law.get("pass_rate")) is not None:
        yield f"pass rate       Beta({rate['a']:.3g}, {rate['b']:.3g})"
        both = f"{rate['prompt_correlation']:+.2f} of prompts, {rate['sample_correlation']:+.2f} within"
        yield f"                correlation with length {both}"


def _extras(extras: dict[str, Any]) -> Iterator[str]:
    if (drift := extras["drift"]) is not None:
        first, last = drift["versions"]
        factor = drift["knots"][-1]["factor"]
        told = f"x {factor:.2f} from {drift['by']} {first:g} to {last:g}"
        if not drift["is_told"]:
            told = "none that can be told from chance"
        yield from wrap(
            f"drift           {told}; the law is that of all of them together, a config's workload.drift adds it", 16
        )
    for name, what in (("reward_s", "rewards"), ("tool_s", "tools")):
        if (found := extras[name]) is not None:
            told = f"median {found['median_s']:.3g} s, P99 {found['p99_s']:.3g} s, n = {found['n']:,}"
            setting = "; workload.reward_s: {median_s: ..., p99_s: ...}" if name == "reward_s" else ""
            yield from wrap(f"{what:<16}{told}{setting}", 16)

"""From a length source to a length law: ``python -m rollsim.calibration.fit_length_law`` makes the shipped ones again.

The order is fixed, and each number is used at most once: the body from quantiles below the cap; runaways from the
share at the cap, if it is used; the prompt's share of the variance from the spread of group means or within groups; the
Beta distribution of pass rates from their mean and spread (moments); then the two correlations. All other published
numbers are held out.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from scipy.optimize import brentq

from rollsim.calibration.group_statistics import drawn_statistics
from rollsim.calibration.length_body_fit import fit_body
from rollsim.calibration.length_source import FOLDER, SETS, Fact, LengthSource, Statistic, read_length_source
from rollsim.calibration.rounding import rounded
from rollsim.simulator import length_law as document
from rollsim.simulator.law_store import SHIPPED
from rollsim.simulator.lengths import Lengths
from rollsim.traces.errors import BadInput, Fault

Change = Callable[[document.LengthLaw, float], document.LengthLaw]

_DIGITS = 5
_TOLERANCE = 1e-4
_ROUNDS = 3  # each correlation moves the other's number a little
_ANALYTIC: dict[Statistic, Callable[[Lengths, Fact, int], float]] = {
    "cap_share": lambda lengths, _fact, _size: lengths.cap_share(),
    "mean_tokens": lambda lengths, _fact, _size: lengths.mean(),
    "share_up_to": lambda lengths, fact, _size: float(lengths.share_up_to(fact.at or 0)),
    "longest_over_median": lambda lengths, fact, size: (
        lengths.expected_maximum(round((fact.at or size) / size), size) / float(lengths.quantile(0.5))
    ),
}


def fit_length_law(source: LengthSource, body: document.LengthLaw | None = None) -> document.LengthLaw:
    """Fit a law to a source.

    Parameters
    ----------
    source
    body
        A law whose body and prompt lengths are taken as they are; None: they are fitted to the source's quantiles.

    Raises
    ------
    BadInput
        If a published spread or correlation lies beyond what any law of this form can give.
    """
    law = body or _with_body(source)
    law = _solved(law, source, "std_of_group_means", 0.01, 0.99, _with_share)
    law = _solved(law, source, "cv_in_group", 0.01, 0.99, _with_share)
    if source.pass_rate is not None:
        law = law.model_copy(update={"pass_rate": _moments(source, source.pass_rate)})
    for _ in range(_ROUNDS):
        law = _solved(law, source, "pass_rate_length_correlation", -0.999, 0.999, _with_rate("prompt_correlation"))
        law = _solved(law, source, "median_right", -0.999, 0.0, _with_rate("sample_correlation"))
    return law.model_copy(update={"evidence": _evidence(law, source)})


def fit_shipped(folder: Path = FOLDER, out: Path = SHIPPED) -> list[Path]:
    """Fit every source of a folder and write the laws; returns their paths."""
    out.mkdir(exist_ok=True)
    paths = []
    for path in sorted(folder.glob("*.yaml")):
        law = fit_length_law(read_length_source(path))
        paths.append(out / f"{law.name}.json")
        law.write(paths[-1])
    return paths


def _with_body(source: LengthSource) -> document.LengthLaw:
    used = [(share, tokens) for share, tokens in source.quantiles if source.is_used(share, tokens)]
    shares, tokens = zip(*used, strict=True)
    parts, runaway = fit_body(shares, tokens, source.components, source.cap_tokens, source.used("cap_share"))
    weights = [rounded(part.weight, _DIGITS) for part in parts[:-1]]
    return document.LengthLaw(
        schema_version=document.SCHEMA_VERSION,
        name=source.name,
        title=source.title,
        cap_tokens=source.cap_tokens,
        body=tuple(
            document.Lognormal(
                weight=weight, median_tokens=rounded(part.median_tokens, _DIGITS), sigma=rounded(part.sigma, _DIGITS)
            )
            for part, weight in zip(parts, [*weights, rounded(1 - sum(weights), _DIGITS + 1)], strict=True)
        ),
        runaway_share=rounded(runaway, _DIGITS),
        prompt_share=source.prompt_share,
        prompt=source.prompt,
        pass_rate=source.pass_rate,
    )


def _moments(source: LengthSource, start: document.PassRate) -> document.PassRate:
    """Beta distribution by moments: the variance of a group's observed rate is that of p plus E p(1 - p) / n."""
    mean, deviation, n = source.used("mean_pass_rate"), source.used("std_pass_rate"), source.group_size
    if mean is None or deviation is None:
        return start
    variance = (deviation**2 - mean * (1 - mean) / n) * n / (n - 1)
    if not 0 < variance < mean * (1 - mean):
        message = "no Beta distribution of pass rates has this spread"
        raise BadInput(Fault(source.name, "std_pass_rate", deviation, message=message))
    count = mean * (1 - mean) / variance - 1
    return start.model_copy(update={"a": rounded(mean * count, _DIGITS), "b": rounded((1 - mean) * count, _DIGITS)})


def _with_share(law: document.LengthLaw, value: float) -> document.LengthLaw:
    return law.model_copy(update={"prompt_share": value})


def _with_rate(name: str) -> Change:
    def change(law: document.LengthLaw, value: float) -> document.LengthLaw:
        if law.pass_rate is None:
            raise ValueError("a law without pass rates has no correlation of them")
        return law.model_copy(update={"pass_rate": law.pass_rate.model_copy(update={name: value})})

    return change


def _solved(
    law: document.LengthLaw, source: LengthSource, statistic: Statistic, low: float, high: float, change: Change
) -> document.LengthLaw:
    """Solve for the one parameter that makes a drawn statistic equal to the published one, if that is used."""
    published = source.used(statistic)
    if published is None:
        return law

    def misfit(value: float) -> float:
        return drawn_statistics(change(law, value), source.group_size)[statistic] - published

    ends = misfit(low), misfit(high)
    if ends[0] * ends[1] > 0:
        reach = f"{ends[0] + published:.4g} to {ends[1] + published:.4g}"
        raise BadInput(Fault(source.name, statistic, published, reach, message="beyond what the form of law can give"))
    root = brentq(misfit, low, high, xtol=_TOLERANCE)
    return change(law, rounded(float(root), 4))  # pyright: ignore[reportArgumentType]


def _evidence(law: document.LengthLaw, source: LengthSource) -> document.Evidence:
    lengths = Lengths(law)
    quantiles = tuple(
        document.Quantile(
            share=share,
            tokens=tokens,
            used=source.is_used(share, tokens),
            error=rounded(float(lengths.quantile(share)) / tokens - 1, 3),
        )
        for share, tokens in source.quantiles
    )
    used = [quantile.tokens for quantile in quantiles if quantile.used]
    return document.Evidence(
        source=source.source,
        license=source.license,
        n=source.n,
        n_note=source.n_note,
        quantiles=quantiles,
        observations=tuple(_observations(lengths, source)),
        free_parameters=(
            f"body: {3 * source.components - 1} to {len(used)} quantiles",
            *(f"{SETS[fact.statistic]}: 1 to {fact.what}" for fact in source.facts if fact.used),
        ),
        fitted_range_tokens=(used[0], used[-1]),
        claims=source.claims,
        cautions=source.cautions,
    )


def _observations(lengths: Lengths, source: LengthSource) -> Iterable[document.Observation]:
    drawn = drawn_statistics(lengths.law, source.group_size)
    for fact in source.facts:
        analytic = _ANALYTIC.get(fact.statistic)
        value = analytic(lengths, fact, source.group_size) if analytic else drawn[fact.statistic]
        yield document.Observation(what=fact.what, published=fact.published, law=rounded(value, 4), used=fact.used)
    if source.used("cap_share") is not None:
        alone = Lengths(_with_body(source.model_copy(update={"facts": ()})))
        published = source.used("cap_share") or 0.0
        what = "cap_share of a body fitted without it"
        yield document.Observation(what=what, published=published, law=rounded(alone.cap_share(), 4), used=False)


if __name__ == "__main__":
    fit_shipped()

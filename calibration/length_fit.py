"""A length law from measured responses: families compared on held-out prompts, groups, pass rates, what they rest on.

The body is the simplest mixture of lognormals that is within a standard error of the best on the held-out prompts. The
prompt's share is the intraclass correlation of the responses' normal scores (Fisher's, from the analysis of variance),
those of cut responses taken as their mean above the cap. Pass rates and their correlations are set as for published
sources (`rollsim.calibration.fit_length_law`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from rollsim.calibration.fit_length_law import fit_length_law
from rollsim.calibration.group_statistics import group_statistics
from rollsim.calibration.length_candidates import Candidate, Observed, candidates, fit
from rollsim.calibration.length_goodness import goodness
from rollsim.calibration.length_source import SCHEMA_VERSION as SOURCE_VERSION
from rollsim.calibration.length_source import Fact, LengthSource
from rollsim.simulator.length_body import Body
from rollsim.simulator.length_law import SCHEMA_VERSION, LengthLaw, PassRate, PromptLength
from rollsim.simulator.profile_parts import Claim
from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.requests import RequestTrace

FORMAT = "rollsim-length-fit"
_FEWEST, _FEWEST_PROMPTS = 50, 4
_SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
# A difference in the log-likelihood of a response that nobody needs more parameters for.
_ALIKE = 1e-3
_RATE = PassRate(a=1.0, b=1.0)


@dataclass(frozen=True)
class Responses:
    """Measured responses.

    Attributes
    ----------
    prompt : array [responses]
        Number of the prompt of each, from 0.
    tokens, cut, prompt_tokens : array [responses]
    right : array [responses], optional
        Whether it was right; None if rewards are unknown, or are not of two values.
    cap_tokens : int
    notes
        What a user should know.
    """

    prompt: NDArray[np.int64]
    tokens: NDArray[np.int64]
    cut: NDArray[np.bool_]
    prompt_tokens: NDArray[np.int64]
    right: NDArray[np.bool_] | None
    cap_tokens: int
    notes: tuple[str, ...] = ()

    @property
    def prompts(self) -> int:
        """How many."""
        return int(self.prompt.max()) + 1

    @property
    def size(self) -> int:
        """The most usual number of responses to a prompt."""
        return int(np.bincount(np.bincount(self.prompt)).argmax())

    def of(self, prompts: NDArray[np.bool_]) -> "Responses":
        """Return those to some prompts, by a mask."""
        chosen = prompts[self.prompt]
        _, prompt = np.unique(self.prompt[chosen], return_inverse=True)
        right = None if self.right is None else self.right[chosen]
        return Responses(
            prompt, self.tokens[chosen], self.cut[chosen], self.prompt_tokens[chosen], right, self.cap_tokens
        )

    def groups(self) -> tuple[NDArray, NDArray | None]:
        """Lengths, and whether they were right, of prompts with the usual number of responses: [prompts, size]."""
        whole = np.bincount(self.prompt) == self.size
        order = np.argsort(self.prompt, kind="stable")
        order = order[whole[self.prompt[order]]]
        shaped = self.tokens[order].reshape(-1, self.size)
        return shaped, None if self.right is None else self.right[order].reshape(-1, self.size).astype(float)


def law_name(text: str) -> str:
    """Return a name that a law may have."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._") or "measured"


def responses(trace: RequestTrace, cap_tokens: int | None = None) -> Responses:
    """Take the responses of a trace that ended or were cut.

    Parameters
    ----------
    trace
    cap_tokens
        Where responses were cut, if the trace does not say it.

    Raises
    ------
    BadInput
        Too few responses or prompts.
    """
    kept = np.ones(len(trace), bool)
    for absent in (trace.unfinished, trace.extra):
        if absent is not None:
            kept &= ~absent
    notes = [f"{(~kept).sum()} responses that had not ended, or are no recorded ones, are left out"] * bool(
        (~kept).any()
    )
    trace = trace.select(kept)
    single = np.where(trace.group < 0, -1 - np.arange(len(trace)), trace.group)
    _, prompt = np.unique(single, return_inverse=True)
    if len(trace) < _FEWEST or len(np.unique(prompt)) < _FEWEST_PROMPTS:
        given = f"{len(trace)} responses to {len(np.unique(prompt))} prompts"
        allowed = f"{_FEWEST} responses or more, to {_FEWEST_PROMPTS} prompts or more"
        raise BadInput(Fault(trace.path, given=given, allowed=allowed, message="too few to fit to"))
    tokens, longest = trace.output_tokens, int(trace.output_tokens.max())
    if cap_tokens is not None:
        cut = tokens >= cap_tokens
    elif trace.truncated is not None:
        cut = trace.truncated
    else:
        cut = (tokens == longest) & (np.sum(tokens == longest) > 1)
        if cut.any():
            notes.append(
                f"{cut.sum()} responses are as long as the longest, and taken as cut there; --cap says otherwise"
            )
        else:
            notes.append("no response is known to have been cut")
    right = None
    if trace.reward is not None and not np.isnan(trace.reward).any():
        values = np.unique(trace.reward)
        right = trace.reward == values[-1] if len(values) == 2 else None
        if right is None:
            notes.append(f"rewards have {len(values)} values: pass rates are fitted to two, right and wrong")
    cap = cap_tokens or longest
    return Responses(prompt, np.minimum(tokens, cap), cut, trace.prompt_tokens, right, cap, tuple(notes))


def fit_lengths(
    seen: Responses, name: str, source: str, progress: Callable[[float], None] = lambda _: None
) -> tuple[LengthLaw, dict[str, Any]]:
    """Fit a law; returns it with all that is said of the fit, as JSON.

    Parameters
    ----------
    seen
    name
        Of the law.
    source
        Where the responses come from.
    progress
        Called with the share that is done.

    Raises
    ------
    BadInput
        Pass rates have a spread that no law of this form can give.
    """
    rng = np.random.default_rng(0)
    half = rng.permutation(seen.prompts) < (seen.prompts + 1) // 2
    fitted, held_out = seen.of(half), seen.of(~half)
    found: list[Candidate] = []
    for candidate in candidates(Observed.of(fitted.tokens, fitted.cut)):
        found.append(candidate)
        progress(0.6 * len(found) / 10)
    compared = [_compared(candidate, fitted, held_out) for candidate in found]
    chosen = _chosen(found, compared, held_out)
    half_law = _law(chosen, fitted, name)
    progress(0.7)
    whole = fit(Observed.of(seen.tokens, seen.cut), chosen.family, atom=chosen.atom)
    law = _described(_law(whole, seen, name), whole, seen, source)
    progress(0.9)
    best = max(compared, key=lambda row: row["held_out"])
    own = compared[found.index(chosen)]
    document = {
        "format": FORMAT,
        "schema_version": 1,
        "source": source,
        "responses": len(seen.tokens),
        "prompts": seen.prompts,
        "group_size": seen.size,
        "cut_share": float(seen.cut.mean()),
        "candidates": compared,
        "best": best["name"],
        "chosen": own["name"],
        "behind_best": best["held_out"] - own["held_out"],
        "held_out": goodness(half_law, held_out.prompt, held_out.tokens, held_out.cut, held_out.size),
        "notes": list(seen.notes),
        "law": law.model_dump(mode="json", exclude_none=True),
    }
    progress(1.0)
    return law, document


def _compared(candidate: Candidate, fitted: Responses, held_out: Responses) -> dict[str, Any]:
    n = len(fitted.tokens)
    own = float(candidate.log_likelihoods(fitted.tokens, fitted.cut).sum())
    other = candidate.log_likelihoods(held_out.tokens, held_out.cut)
    return {
        "name": candidate.name,
        "parameters": candidate.parameters,
        "fitted": own / n,
        "held_out": float(other.mean()),
        "aic": 2 * candidate.parameters - 2 * own,
        "bic": candidate.parameters * float(np.log(n)) - 2 * own,
        "runaway_share": candidate.runaway_share,
    }


def _chosen(found: list[Candidate], compared: list[dict[str, Any]], held_out: Responses) -> Candidate:
    """The simplest mixture of lognormals within a standard error of the best of them; prompts are the sample."""
    mixtures = [candidate for candidate in found if candidate.parts() is not None]
    score = {candidate.name: row["held_out"] for candidate, row in zip(found, compared, strict=True)}
    best = max(mixtures, key=lambda candidate: score[candidate.name])
    of_best = best.log_likelihoods(held_out.tokens, held_out.cut)
    for candidate in sorted(mixtures, key=lambda candidate: candidate.parameters):
        behind = of_best - candidate.log_likelihoods(held_out.tokens, held_out.cut)
        by_prompt = np.bincount(held_out.prompt, weights=behind - behind.mean())
        if behind.mean() < _ALIKE or behind.sum() <= np.sqrt((by_prompt**2).sum()):
            return candidate
    return best


def _law(candidate: Candidate, seen: Responses, name: str) -> LengthLaw:
    parts = candidate.parts()
    assert parts is not None
    logs = np.log(seen.prompt_tokens[np.unique(seen.prompt, return_index=True)[1]])
    return LengthLaw(
        schema_version=SCHEMA_VERSION,
        name=name,
        cap_tokens=seen.cap_tokens,
        body=parts,
        runaway_share=candidate.runaway_share,
        prompt_share=prompt_share(Body(parts, candidate.runaway_share), seen),
        prompt=PromptLength(
            median_tokens=float(np.exp(np.median(logs))),
            sigma=float(np.clip(logs.std(), 1e-3, 5.0)),
            max_tokens=int(seen.prompt_tokens.max()),
        ),
    )


def prompt_share(body: Body, seen: Responses) -> float:
    """Share of the scores' variance that responses to one prompt have in common: an intraclass correlation.

    0 where no prompt has two responses.
    """
    scores = np.clip(body.score(np.log(seen.tokens)), -8.0, 8.0)
    above = ndtr(-scores)
    scores = np.where(seen.cut, np.exp(-(scores**2) / 2) / np.sqrt(2 * np.pi) / np.maximum(above, 1e-300), scores)
    counts = np.bincount(seen.prompt)
    if counts.max() < 2:
        return 0.0
    means = np.bincount(seen.prompt, weights=scores) / counts
    within = float(((scores - means[seen.prompt]) ** 2).sum()) / (len(scores) - len(counts))
    between = float(counts @ (means - scores.mean()) ** 2) / (len(counts) - 1)
    size = (len(scores) - float((counts**2).sum()) / len(scores)) / (len(counts) - 1)
    if between + (size - 1) * within <= 0:
        return 0.0
    return float(np.clip((between - within) / (between + (size - 1) * within), 0.0, 0.99))


def _described(law: LengthLaw, candidate: Candidate, seen: Responses, source: str) -> LengthLaw:
    """Fit pass rates, where responses are right or wrong, and say what the law rests on."""
    tokens, right = seen.groups()
    facts = group_statistics(tokens, right) if len(tokens) > 1 and seen.size > 1 else {}
    rated = right is not None and 0 < facts.get("mean_pass_rate", 0.0) < 1
    wanted = ("mean_pass_rate", "std_pass_rate", "pass_rate_length_correlation", "median_right") if rated else ()
    ended = np.sort(np.where(seen.cut, np.inf, seen.tokens))
    quantiles = [(share, float(ended[int(share * len(ended))])) for share in _SHARES]
    told = tuple((share, tokens) for share, tokens in quantiles if np.isfinite(tokens) and tokens < seen.cap_tokens)
    low, high = float(seen.tokens.min()), float(seen.tokens[~seen.cut].max(initial=1))
    described = LengthSource(
        schema_version=SOURCE_VERSION,
        name=law.name,
        title=f"measured: {source}",
        source=source,
        license="own data",
        n=len(seen.tokens),
        cap_tokens=seen.cap_tokens,
        quantiles=_rising(told, low, high),
        fit_between=(0.001, 0.999),
        facts=tuple(Fact(statistic=key, published=value, used=key in wanted) for key, value in facts.items()),  # pyright: ignore[reportArgumentType]
        group_size=max(2, seen.size),
        prompt_share=law.prompt_share,
        pass_rate=_RATE if rated else None,
        prompt=law.prompt,
        claims=(
            Claim(part="body", grade="fitted", how=f"maximum likelihood, censored at the cap, {candidate.name}"),
            Claim(part="prompt's share", grade="fitted", how="intraclass correlation of scores")
            if seen.size > 1
            else Claim(part="prompt's share", grade="assumed", how="0: no prompt has two responses"),
            Claim(part="prompt lengths", grade="fitted", how="median and spread of the logarithm"),
            *((Claim(part="pass rates", grade="fitted", how="moments of groups"),) if rated else ()),
        ),
        cautions=seen.notes,
    )
    made = _within_form(described, law)
    assert made.evidence is not None
    parameters = f"body: {candidate.parameters} to {len(seen.tokens):,} lengths"
    return made.model_copy(
        update={
            "title": described.title,
            "evidence": made.evidence.model_copy(
                update={"free_parameters": (parameters, *made.evidence.free_parameters[1:])}
            ),
        }
    )


def _within_form(described: LengthSource, law: LengthLaw) -> LengthLaw:
    """Fit what the form of law can give; a number that is beyond it is held out, and said to be."""
    while True:
        try:
            return fit_length_law(described, law)
        except BadInput as error:
            beyond = {fault.place for fault in error.faults}
            if not any(fact.used and fact.statistic in beyond for fact in described.facts):
                raise
            facts = tuple(
                fact.model_copy(update={"used": fact.used and fact.statistic not in beyond}) for fact in described.facts
            )
            cautions = (*described.cautions, *(f"not fitted: {fault}" for fault in error.faults))
            described = described.model_copy(update={"facts": facts, "cautions": cautions})


def _rising(quantiles: tuple[tuple[float, float], ...], low: float, high: float) -> tuple[tuple[float, float], ...]:
    """At least four, for lengths of which nearly all were cut."""
    if len(quantiles) >= 4:
        return quantiles
    return tuple(zip((0.01, 0.02, 0.03, 0.04), np.linspace(low, max(low, high), 4).tolist(), strict=True))

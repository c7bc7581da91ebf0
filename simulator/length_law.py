"""A length law as a document: how long responses are, how often they are right, and what both rest on.

A response has a *score*, a standard normal built from an effect of its prompt and one of its own (`prompt_share` is the
prompt's share of the variance). Its length is the quantile of the law at that score, cut at the cap: `lengths`.
"""

import itertools
import math
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from rollsim.simulator.profile_parts import Claim, Part

SCHEMA_VERSION = 1
NAME = r"^[a-z0-9][a-z0-9._-]*$"

Share = Annotated[float, Field(ge=0, le=1)]
ProperShare = Annotated[float, Field(ge=0, lt=1)]
Correlation = Annotated[float, Field(ge=-1, le=1)]
Sigma = Annotated[float, Field(ge=1e-3, le=5)]


class Lognormal(Part):
    """A lognormal part of the body: its share, median [tokens] and standard deviation of the logarithm."""

    weight: Annotated[float, Field(gt=0, le=1)]
    median_tokens: PositiveFloat
    sigma: Sigma


class Drift(Part):
    """From this version of the weights on, lengths are `factor` times the body's; between two, geometric."""

    version: Annotated[int, Field(ge=0)]
    factor: PositiveFloat


class PromptLength(Part):
    """Length of prompts [tokens]: one lognormal, cut at `max_tokens`."""

    median_tokens: PositiveFloat
    sigma: Sigma
    max_tokens: PositiveInt


class PassRate(Part):
    """Chance that a response to a prompt is right: 0 for `never_share` of the prompts, 1 for `always_share`, else Beta.

    Parameters
    ----------
    a, b
        Parameters of the Beta distribution.
    prompt_correlation
        Of the normal scores of a prompt's pass rate and of its length effect; below 0, hard prompts get long responses.
    sample_correlation
        Of the normal scores of success and of a response's own length effect; below 0, long ones of a group fail first.
    truncated_fails
        A response cut at the cap has no answer and so is never right; the pass rate is that of the others.
    """

    never_share: ProperShare = 0.0
    always_share: ProperShare = 0.0
    a: PositiveFloat
    b: PositiveFloat
    prompt_correlation: Correlation = 0.0
    sample_correlation: Correlation = 0.0
    truncated_fails: bool = True

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.never_share + self.always_share >= 1:
            raise ValueError("never_share + always_share must be below 1")
        return self


class Quantile(Part):
    """A published quantile: `share` of the responses are at most `tokens` long.

    `used` if the law was fitted to it, else held out; `error` is the law's value over the published one, less 1.
    """

    share: Annotated[float, Field(gt=0, lt=1)]
    tokens: PositiveFloat
    used: bool
    error: float


class Observation(Part):
    """Another published number and the law's; `used` if a parameter was fitted to it, else held out."""

    what: str
    published: float
    law: float
    used: bool


class Evidence(Part):
    """What a law rests on: source, published numbers with the law's errors, free parameters, and what is assumed.

    `fitted_range_tokens` is that of the quantiles that were used: beyond it the body is extrapolated.
    """

    source: str
    license: str
    n: PositiveInt | None = None
    n_note: str = ""
    quantiles: tuple[Quantile, ...]
    observations: tuple[Observation, ...] = ()
    free_parameters: tuple[str, ...]
    fitted_range_tokens: tuple[PositiveFloat, PositiveFloat]
    claims: tuple[Claim, ...]
    cautions: tuple[str, ...] = ()


class LengthLaw(Part):
    """A law of response lengths.

    Parameters
    ----------
    cap_tokens
        Longest response there can be; longer ones are cut there (right-censored).
    body
        Mixture of lognormals, weights adding up to 1.
    runaway_share
        Share of responses that never end by themselves: with the body's part above the cap, the mass at the cap.
    prompt_share
        Share of the score's variance that responses to one prompt have in common.
    """

    schema_version: Literal[1]
    name: Annotated[str, Field(pattern=NAME)]
    title: str = ""
    cap_tokens: PositiveInt
    body: tuple[Lognormal, ...] = Field(min_length=1, max_length=8)
    runaway_share: ProperShare = 0.0
    prompt_share: Share
    drift: tuple[Drift, ...] = ()
    prompt: PromptLength
    pass_rate: PassRate | None = None
    evidence: Evidence | None = None

    @model_validator(mode="after")
    def _sums_and_order(self) -> Self:
        total = math.fsum(part.weight for part in self.body)
        if abs(total - 1) > 1e-6:
            raise ValueError(f"body: the weights must add up to 1, they add up to {total:.6g}")
        if any(later.version <= earlier.version for earlier, later in itertools.pairwise(self.drift)):
            raise ValueError("drift: the versions must increase strictly")
        return self

    def write(self, path: Path) -> None:
        """Write the law as JSON that `law_store.load_law` reads back to an equal law."""
        path.write_text(self.model_dump_json(indent=1, exclude_none=True) + "\n", encoding="utf-8")

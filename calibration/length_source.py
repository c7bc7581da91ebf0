"""Published numbers about response lengths, as files of `length_sources`: what a law is fitted to and what is held out.

Which number is used for which parameter is written down in the file, before any fit.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from rollsim.simulator.documents import read_document
from rollsim.simulator.length_law import NAME, PassRate, PromptLength
from rollsim.simulator.profile_parts import Claim, Part

SCHEMA_VERSION = 1
FOLDER = Path(__file__).parent / "length_sources"

Statistic = Literal[
    "cap_share",
    "mean_tokens",
    "share_up_to",
    "longest_over_median",
    "std_of_group_means",
    "std_in_group",
    "cv_in_group",
    "longest_over_group_mean",
    "mean_pass_rate",
    "std_pass_rate",
    "all_wrong",
    "all_right",
    "pass_rate_length_correlation",
    "median_right",
    "median_wrong",
]
# What a used number sets; pass-rate mean and standard deviation come together.
SETS: dict[Statistic, str] = {
    "cap_share": "runaway_share",
    "std_of_group_means": "prompt_share",
    "cv_in_group": "prompt_share",
    "mean_pass_rate": "pass_rate.a",
    "std_pass_rate": "pass_rate.b",
    "pass_rate_length_correlation": "pass_rate.prompt_correlation",
    "median_right": "pass_rate.sample_correlation",
}


class Fact(Part):
    """A published number other than a quantile.

    Parameters
    ----------
    statistic
        What it is of. ``std_in_group`` is the mean over groups of the sample standard deviation (n - 1),
        ``cv_in_group`` that of its ratio to the mean, ``longest_over_group_mean`` a median over groups; the pass rates
        are the observed ones of groups, the medians lengths of right and of wrong responses [tokens].
    at
        Tokens for ``share_up_to``, number of responses for ``longest_over_median``.
    used
        A parameter is fitted to it (see `SETS`); else it is held out.
    """

    statistic: Statistic
    at: PositiveFloat | None = None
    published: float
    used: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.used and self.statistic not in SETS:
            raise ValueError(f"no parameter is fitted to {self.statistic}; one is to {', '.join(SETS)}")
        if (self.at is not None) != (self.statistic in ("share_up_to", "longest_over_median")):
            raise ValueError("at: needed by share_up_to and longest_over_median, and by no other")
        return self

    @property
    def what(self) -> str:
        """Name of the number, with what it is at."""
        return self.statistic if self.at is None else f"{self.statistic} {self.at:.0f}"


class LengthSource(Part):
    """One source.

    Parameters
    ----------
    n
        Responses behind it, None if not published.
    quantiles
        Pairs of share and tokens, rising.
    fit_between
        The quantiles at these shares and between them are used, the others held out.
    components
        Lognormals of the body.
    group_size
        Responses to a prompt, where groups were measured.
    prompt_share, pass_rate, prompt
        What is not fitted, or where a fit starts; `claims` say what it rests on.
    """

    schema_version: Literal[1]
    name: Annotated[str, Field(pattern=NAME)]
    title: str
    source: str
    license: str
    n: PositiveInt | None = None
    n_note: str = ""
    cap_tokens: PositiveInt
    quantiles: tuple[tuple[float, PositiveFloat], ...] = Field(min_length=4)
    fit_between: tuple[float, float]
    components: Annotated[int, Field(ge=1, le=4)] = 2
    facts: tuple[Fact, ...] = ()
    group_size: PositiveInt = 8
    prompt_share: Annotated[float, Field(ge=0, le=1)]
    pass_rate: PassRate | None = None
    prompt: PromptLength
    claims: tuple[Claim, ...]
    cautions: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _rising(self) -> Self:
        shares, tokens = zip(*self.quantiles, strict=True)
        if list(shares) != sorted(set(shares)) or list(tokens) != sorted(tokens):
            raise ValueError("quantiles: shares and tokens must rise")
        if not 0 < shares[0] <= shares[-1] < 1:
            raise ValueError("quantiles: shares must lie between 0 and 1")
        if tokens[-1] > self.cap_tokens:
            raise ValueError(f"quantiles: {tokens[-1]} tokens are above the cap of {self.cap_tokens}")
        targets = [SETS[fact.statistic] for fact in self.facts if fact.used]
        if len(targets) > len(set(targets)):
            raise ValueError("facts: more than one is used for the same parameter")
        if self.pass_rate is None and any(target.startswith("pass_rate") for target in targets):
            raise ValueError("facts: pass rates are fitted only where pass_rate says what the fit starts from")
        return self

    def is_used(self, share: float, tokens: float) -> bool:
        """Tell whether a quantile is fitted; one at the cap never is, since it is censored."""
        return self.fit_between[0] <= share <= self.fit_between[1] and tokens < self.cap_tokens

    def used(self, statistic: Statistic) -> float | None:
        """Published value of a number that a parameter is fitted to, None if it is not used."""
        return next((fact.published for fact in self.facts if fact.used and fact.statistic == statistic), None)


def read_length_source(path: Path) -> LengthSource:
    """Read a source from JSON or YAML; `BadInput` with every fault."""
    return read_document(path, LengthSource, SCHEMA_VERSION)

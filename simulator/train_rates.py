"""Free parameters of a train step: defaults with what they rest on, then those of the profile, then of the config.

The fitted defaults are those for which published runs of prime-rl come out (commit 559b447, Apache-2.0; 8 H100, all
parameters trained, two micro-batches of one sequence); `docs/costs.md` shows these and the runs that they predict.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from rollsim.simulator.profile_parts import Claim, Train, Value

_DENSE = "fitted to 2 runs of Qwen3-4B on 8 H100 (prime-rl), sequences of 16k and 64k"
_MIXTURE = "fitted to 1 run of Qwen3-30B-A3B on 8 H100 (prime-rl), sequences of 16k"
_COMMON = {
    "attention_mfu": Value(value=0.624, grade="fitted", how=_DENSE),
    "link_bytes_per_s": Value(value=50e9, grade="assumed", how="one 400 Gb/s link a GPU"),
    "exposed": Value(value=0.3, grade="assumed", how="backward hides the rest"),
}
DENSE = _COMMON | {
    "mfu": Value(value=0.313, grade="fitted", how=_DENSE),
    "forward_mfu": Value(value=0.313, grade="assumed", how="as with gradients"),
}
MIXTURE = _COMMON | {
    "mfu": Value(value=0.167, grade="fitted", how=_MIXTURE),
    "forward_mfu": Value(value=0.167, grade="assumed", how="as with gradients"),
}


@dataclass(frozen=True)
class Rates:
    """Free parameters of a train step.

    Attributes
    ----------
    mfu, forward_mfu : float
        Share of the peak that products with weights reach, in passes with gradients and without.
    attention_mfu : float
        Share of the peak that attention reaches.
    link_bytes_per_s : float
        Rate at which one GPU exchanges weights and gradients.
    exposed : float
        Share of that exchange that no computation hides.
    """

    mfu: float
    forward_mfu: float
    attention_mfu: float
    link_bytes_per_s: float
    exposed: float


def values(section: Train, stated: Mapping[str, float | None], *, mixture: bool) -> dict[str, Value]:
    """Each parameter with what it rests on.

    Parameters
    ----------
    section : Train
        Of the profile; wins over the defaults.
    stated : mapping
        Of the config, None where it says nothing; wins over both.
    mixture : bool
        Whether the model is a mixture of experts.
    """
    found = dict(MIXTURE if mixture else DENSE)
    found |= {name: value for name in found if (value := getattr(section, name)) is not None}
    return found | {
        name: Value(value=value, grade="assumed", how="stated in the config")
        for name, value in stated.items()
        if value is not None
    }


def rates(found: Mapping[str, Value]) -> Rates:
    """Return the numbers alone."""
    return Rates(**{field.name: found[field.name].value for field in fields(Rates)})


def claims(found: Mapping[str, Value]) -> list[Claim]:
    """Grade of each parameter, for what a run rests on."""
    return [Claim(part=f"train step: {name}", grade=value.grade, how=value.how) for name, value in found.items()]

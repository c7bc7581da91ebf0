"""Free parameters of a train step: defaults with what they rest on, then those of the profile, then of the config.

The fitted defaults are those for which published runs of prime-rl come out (commit 559b447, Apache-2.0; 8 H100, all
parameters trained, two micro-batches of one sequence), given the two assumed ones; `docs/costs.md` shows these and the
runs that they predict.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from rollsim.simulator.profile_parts import Claim, Efficiency, Fraction, Rate, Train, Value

_DENSE = "2 runs of Qwen3-4B on 8 H100 (prime-rl), sequences of 16k and 64k"
_MIXTURE = "1 run of Qwen3-30B-A3B on 8 H100 (prime-rl), sequences of 16k"
_COMMON: dict[str, Value] = {
    "attention_mfu": Efficiency(value=0.624, grade="fitted", how=_DENSE),
    "link_bytes_per_s": Rate(value=50e9, grade="assumed", how="one 400 Gb/s link a GPU"),
    "exposed_communication": Fraction(value=0.3, grade="assumed", how="computation hides the rest"),
}
DENSE = _COMMON | {
    "mfu": Efficiency(value=0.313, grade="fitted", how=_DENSE),
    "forward_mfu": Efficiency(value=0.313, grade="assumed", how="as with gradients"),
}
MIXTURE = _COMMON | {
    "mfu": Efficiency(value=0.167, grade="fitted", how=_MIXTURE),
    "forward_mfu": Efficiency(value=0.167, grade="assumed", how="as with gradients"),
}
# GPUs on which some published step came out within 12 %, in bf16: elsewhere the fitted defaults are extrapolated.
TESTED = ("A100-SXM-80GB", "H100-SXM-80GB", "H200-SXM-141GB")


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
    exposed_communication : float
        Share of that exchange that no computation hides.
    """

    mfu: float
    forward_mfu: float
    attention_mfu: float
    link_bytes_per_s: float
    exposed_communication: float


NAMES = tuple(field.name for field in fields(Rates))


def values(
    section: Train, stated: Mapping[str, float | None], *, mixture: bool, gpu: str, dtype: str = "bf16"
) -> dict[str, Value]:
    """Each parameter with what it rests on.

    Parameters
    ----------
    section : Train
        Of the profile; wins over the defaults.
    stated : mapping
        Of the config, None where it says nothing; wins over both.
    mixture : bool
        Whether the model is a mixture of experts.
    gpu, dtype : str
        Which peak the defaults are shares of.
    """
    found: dict[str, Value] = {}
    for name, default in (MIXTURE if mixture else DENSE).items():
        value = stated.get(name)
        if value is not None:
            found[name] = type(default).stated(value)
        elif (own := getattr(section, name)) is not None:
            found[name] = own
        elif default.grade == "fitted" and not (gpu in TESTED and dtype == "bf16"):
            how = f"the share that {default.how} reach, of the peak of {gpu} in {dtype}"
            found[name] = default.model_copy(update={"grade": "extrapolated", "how": how})
        else:
            found[name] = default
    return found


def rates(found: Mapping[str, Value]) -> Rates:
    """Return the numbers alone."""
    return Rates(**{name: found[name].value for name in NAMES})


def claims(found: Mapping[str, Value]) -> list[Claim]:
    """Grade of each parameter, for what a run rests on."""
    return [value.claim(f"train step: {name}") for name, value in found.items()]

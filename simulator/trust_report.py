"""What the answer of a run rests on, as text."""

from typing import Any

from rollsim.simulator.wording import pair

_GRADES = ("measured", "fitted", "predicted", "computed", "assumed", "extrapolated")


def trust_lines(document: dict[str, Any]) -> list[str]:
    """Say which parts are fitted, assumed and extrapolated, and how far the source is known to be off."""
    basis = document["basis"]
    if basis is None:
        return []
    lines = ["", "WHAT THIS RESTS ON"]
    for grade in _GRADES:
        parts = [claim["part"] for claim in basis["claims"] if claim["grade"] == grade]
        if parts:
            lines += pair(grade, "; ".join(parts))
    for outside in basis["outside_range"]:
        lines += pair("OUTSIDE", outside)
    if not basis["outside_range"]:
        lines += pair("range", "all of the generation lies inside the fitted range of the profile")
    bias = basis["bias"]
    if bias is None:
        lines += pair("bias", "none known: the source has no measured end-to-end points for this engine")
    else:
        lines += pair(
            "bias",
            f"real times of generation are {bias['low']:.2f} to {bias['high']:.2f} x the simulated (P10 to P90), "
            f"median {bias['median']:.2f} x; {bias['n']} measured points ({bias['match']}): {bias['origin']}. "
            "Not applied above",
        )
    for caution in basis["profile"]["cautions"]:
        lines += pair("caution", caution)
    profile = basis["profile"]
    return lines + pair("profile", f"{profile['name']}, from {profile['source']}; the rest: `rollsim profiles show`")

"""The fit to a training log as JSON, and as text: factors, then each phase measured beside predicted."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from rollsim.calibration.log_fit import LogFit, Phase
from rollsim.simulator.wording import wrap

FORMAT = "rollsim-log-fit"
SCHEMA_VERSION = 1
_ON = {
    "generation": "all costs of the engine",
    "switch": "switches of roles",
    "train": "products, attention and links with gradients",
    "forward": "products without gradients",
    "weight_sync": "the weight sync",
}


def document(fit: LogFit, base: str, profile: str) -> dict[str, Any]:
    """Return all that is said of it; `base` and `profile` are names."""
    on = _ON | ({"switch": "switches of roles, and the weight sync"} if fit.syncs_with_switch else {})
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "log": fit.logged.file,
        "base": base,
        "profile": profile,
        "steps": len(fit.logged),
        "fitted": fit.fitted,
        "lengths": {
            name: [float(values.min()), float(values.max())]
            for name, values in (("mean", fit.logged.output_tokens), ("longest", fit.logged.longest_tokens))
        },
        "factors": {name: asdict(factor) | {"on": on[name]} for name, factor in fit.factors.items()},
        "phases": [_phase(phase, fit.fitted) for phase in fit.phases],
        "notes": list(fit.notes),
    }


def _phase(phase: Phase, fitted: int) -> dict[str, Any]:
    return {
        "name": phase.name,
        "measured_s": phase.measured_s.tolist(),
        "predicted_s": phase.predicted_s.tolist(),
        "fitted": _errors(phase, slice(fitted)),
        "held_out": _errors(phase, slice(fitted, None)),
    }


def _errors(phase: Phase, steps: slice) -> dict[str, float] | None:
    """Of predicted against measured: a tenth, the median, nine tenths, and the median size; None without steps."""
    signed = phase.predicted_s[steps] / phase.measured_s[steps] - 1
    if not len(signed):
        return None
    low, median, high = (float(value) for value in np.quantile(signed, (0.1, 0.5, 0.9)))
    return {"p10": low, "median": median, "p90": high, "median_size": float(np.median(np.abs(signed)))}


def text(said: dict[str, Any]) -> str:
    """Lay out a document, at most 80 columns."""
    return "\n".join(_lines(said))


def _lines(said: dict[str, Any]) -> Iterator[str]:
    later = said["steps"] - said["fitted"]
    yield from wrap(f"{said['log']}: {said['fitted']} steps fitted, {later} later ones held out")
    yield from wrap(f"{said['profile']}: the costs of {said['base']}, times these factors (fitted):")
    yield ""
    for name, factor in said["factors"].items():
        yield f"  {factor['value']:>8.3f} ± {factor['error']:<7.2g} {name}: {factor['on']}"
    yield ""
    yield f"{'':<25}{'measured':>9}{'predicted':>10}   error: P10  median     P90"
    for phase in said["phases"]:
        for which, steps in (("fitted", slice(said["fitted"])), ("held_out", slice(said["fitted"], None))):
            if (errors := phase[which]) is None:
                continue
            label = phase["name"] if which == "fitted" else "  later steps"
            mean = [float(np.mean(phase[key][steps])) for key in ("measured_s", "predicted_s")]
            shown = "".join(f"{errors[key]:>+8.1%}" for key in ("p10", "median", "p90"))
            yield f"{label:<25}{mean[0]:>7.4g} s{mean[1]:>8.4g} s   {shown}"
    yield ""
    lengths = said["lengths"]
    yield from wrap(
        f"Responses of {lengths['mean'][0]:,.0f} to {lengths['mean'][1]:,.0f} tokens in the mean of a step, the "
        f"longest {lengths['longest'][0]:,.0f} to {lengths['longest'][1]:,.0f}. Each batch is taken as a lognormal "
        "with its mean that is cut at its longest: an assumption."
    )
    for note in said["notes"]:
        yield from wrap(note)

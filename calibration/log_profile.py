"""A profile with the factors of a training log on the costs of another profile."""

import hashlib
import re
from pathlib import Path
from typing import TypeVar

import numpy as np

from rollsim.calibration.log_fit import Factor, LogFit, Phase
from rollsim.calibration.logged_steps import LoggedSteps
from rollsim.calibration.residuals import errors
from rollsim.calibration.rounding import rounded
from rollsim.simulator import profile_parts as parts
from rollsim.simulator.config import Config
from rollsim.simulator.profile import Profile
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.sync_cost import HOST_BYTES_PER_S, SWITCH_FIXED_S, path

V = TypeVar("V", bound=parts.Value)
# So many steps are needed before a tenth and nine tenths of their errors say anything.
_BAND_STEPS = 10
_NOT_COSTS = ("KV blocks", "engine limits")


def log_profile(fit: LogFit, config: Config, name: str | None = None) -> Profile:
    """Put the factors of a fit on the profile of its config.

    What has no factor stays as it was, with what it rests on.
    """
    base, log = load_profile(config.model.profile), Path(fit.logged.file)
    how = f"to {fit.fitted} steps of {log.name}"
    changed = {
        "name": name or re.sub(r"[^a-z0-9._]+", "-", f"{base.name}-{log.stem}".lower()),
        "train": base.train.model_copy(update=_train(fit, how)),
        "sync": _sync(fit, config, base.sync, how),
        "source": parts.Source(
            name=f"{base.source.name}, with factors fitted {how}",
            license=base.source.license,
            file=log.name,
            sha256=_digest(fit.logged),
        ),
        "cautions": (*base.cautions, _lengths(fit.logged), *fit.notes),
        "fit": base.fit.model_copy(
            update={
                "held_out": base.fit.held_out | _held_out(fit),
                "covariance": parts.Covariance(
                    names=tuple(f"factor: {key}" for key in fit.factors),
                    matrix=tuple(map(tuple, np.diag([rounded(f.error**2) for f in fit.factors.values()]).tolist())),
                ),
            }
        ),
    }
    if (generation := fit.factors.get("generation")) is not None:
        factor = f"x {generation.value:.3f}, fitted {how}"
        changed |= {
            "costs": _scaled(base.costs, generation.value),
            "claims": tuple(claim if claim.part in _NOT_COSTS else _more(claim, factor) for claim in base.claims),
            "bias": _bias(fit.phases[0], fit.fitted, log.name),
        }
    return base.model_copy(update=changed)


def _lengths(logged: LoggedSteps) -> str:
    low, high, longest = logged.output_tokens.min(), logged.output_tokens.max(), logged.longest_tokens.max()
    return (
        f"its factors come from responses of {low:,.0f} to {high:,.0f} tokens in the mean of a step, the longest "
        f"{longest:,.0f}; others are extrapolated"
    )


def _digest(logged: LoggedSteps) -> str:
    """Of all its numbers."""
    digest = hashlib.sha256()
    for column in (logged.number, logged.prompt_tokens, logged.output_tokens, *logged.seconds.values()):
        digest.update(np.ascontiguousarray(column, dtype=float).tobytes())
    return digest.hexdigest()


def _more(claim: parts.Claim, how: str) -> parts.Claim:
    return claim.model_copy(update={"how": f"{claim.how}; {how}"})


def _scaled(costs: parts.Costs, factor: float) -> parts.Costs:
    def times(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(rounded(factor * value) for value in values)

    decode, prefill = costs.decode, costs.prefill
    return costs.model_copy(
        update={
            "host_s": rounded(factor * costs.host_s),
            "decode": decode.model_copy(
                update={"dense_s": times(decode.dense_s), "kv_read_s": times(decode.kv_read_s)}
            ),
            "prefill": prefill.model_copy(
                update={"dense_s": times(prefill.dense_s), "attn_s": rounded(factor * prefill.attn_s)}
            ),
        }
    )


def _train(fit: LogFit, how: str) -> dict[str, parts.Value]:
    found: dict[str, parts.Value] = {}
    if (train := fit.factors.get("train")) is not None:
        told = f"one factor of {train.value:.3f} on all of them, {how}"
        names = ("mfu", "attention_mfu", *(() if "forward" in fit.factors else ("forward_mfu",)))
        found |= {name: parts.Efficiency(value=fit.rates[name], grade="fitted", how=told) for name in names}
        found["link_bytes_per_s"] = parts.Rate(value=fit.rates["link_bytes_per_s"], grade="fitted", how=told)
    if (forward := fit.factors.get("forward")) is not None:
        told = f"factor of {forward.value:.3f}, {how}"
        found["forward_mfu"] = parts.Efficiency(value=fit.rates["forward_mfu"], grade="fitted", how=told)
    return found


def _sync(fit: LogFit, config: Config, section: parts.Sync, how: str) -> parts.Sync:
    stated = config.sync
    own = path(stated.path, section, stated.fixed_s, stated.bytes_per_s)
    switch, changed = fit.factors.get("switch"), {}
    sync = switch if fit.syncs_with_switch else fit.factors.get("weight_sync")
    if sync is not None:
        paths = {**(section.paths or {})}
        paths[stated.path] = parts.SyncPath(
            fixed_s=_longer(own.fixed_s, sync, how), bytes_per_s=_slower(own.bytes_per_s, sync, how)
        )
        changed["paths"] = paths
    if switch is not None:
        fixed_s, rate = section.switch_fixed_s or SWITCH_FIXED_S, section.host_bytes_per_s or HOST_BYTES_PER_S
        fixed_s = fixed_s if stated.switch_fixed_s is None else parts.Value.stated(stated.switch_fixed_s)
        rate = rate if stated.host_bytes_per_s is None else parts.Rate.stated(stated.host_bytes_per_s)
        changed |= {"switch_fixed_s": _longer(fixed_s, switch, how), "host_bytes_per_s": _slower(rate, switch, how)}
    return section.model_copy(update=changed)


def _longer(value: V, factor: Factor, how: str) -> V:
    return _fitted(value, value.value * factor.value, factor, how)


def _slower(value: V, factor: Factor, how: str) -> V:
    return _fitted(value, value.value / factor.value, factor, how)


def _fitted(value: V, number: float, factor: Factor, how: str) -> V:
    told = f"factor of {factor.value:.3f} on {value.value:.4g} ({value.how}), {how}"
    return value.model_copy(update={"value": rounded(number), "grade": "fitted", "how": told})


def _held_out(fit: LogFit) -> dict[str, parts.Errors]:
    if len(fit.logged) == fit.fitted:
        return {}
    later = slice(fit.fitted, None)
    return {
        f"{phase.name}, later steps of the log": errors(phase.predicted_s[later], phase.measured_s[later])
        for phase in fit.phases
    }


def _bias(generation: Phase, fitted: int, log: str) -> parts.Bias:
    """Band of the steps that were held out, or of the fitted ones where those are too few."""
    held_out = len(generation.measured_s) - fitted >= _BAND_STEPS
    used = slice(fitted, None) if held_out else slice(fitted)
    signed = generation.predicted_s[used] / generation.measured_s[used] - 1
    low, median, high = (rounded(float(value), 3) for value in np.quantile(signed, (0.1, 0.5, 0.9)))
    which = "steps after those that were fitted to" if held_out else "the steps that were fitted to, none held out"
    return parts.Bias(median=median, p10=low, p90=high, n=len(signed), match="the same run", origin=f"{log}: {which}")

"""Shares of the peak that a train step reaches, from its times on one device.

    gradients  = (3 + recompute) (weight FLOPs / (peak mfu) + attention FLOPs / (peak attention_mfu))
    no gradients = weight FLOPs / (peak forward_mfu) + attention FLOPs / (peak attention_mfu)

(`rollsim.simulator.train_cost`, on one GPU). Both lines are fitted to relative errors, with no share below 0; micro-
batches of `HELD_OUT` sequences only say how wrong they are. The peak is that of the catalogue, where it has the GPU; of
another device it is the fastest product that was seen on it.
"""

from typing import Any

import numpy as np
from scipy.optimize import nnls

from rollsim.calibration.residuals import errors
from rollsim.calibration.train_timing import HELD_OUT
from rollsim.simulator.facts import gpu_of_profile
from rollsim.simulator.profile_parts import Efficiency, Model, Train
from rollsim.simulator.train_flops import attention_flops, weight_flops
from rollsim.traces.errors import BadInput, Fault

FORMAT = "rollsim-train-timing"
SCHEMA_VERSION = 1


def fit_training(timed: dict[str, Any], model: Model | None = None) -> dict[str, Any]:
    """Return what was timed with what was fitted to it, as JSON.

    Parameters
    ----------
    timed
        As `rollsim.calibration.train_timing.time_training` returns it.
    model
        As a profile describes the same model, whose FLOPs then count as they do for that profile.

    Raises
    ------
    BadInput
        The times tell no share: they are faster than the peak, or attention takes none of them.
    """
    model = model or _model(timed["model"])
    points = timed["points"]
    tokens, lengths = (np.array([point[name] for point in points]) for name in ("tokens", "length"))
    passes = np.array([3.0 + point["recompute"] for point in points])
    weights = weight_flops(model, tokens)
    attention = attention_flops(model, lengths) * (tokens / lengths)
    gradients_s, forward_s = (
        np.array([float(np.median(point[name])) for point in points]) for name in ("gradients_s", "forward_s")
    )
    fitted = tokens // lengths != HELD_OUT
    design = np.stack([passes * weights, passes * attention], axis=1)
    (weight_s, attention_s), _ = nnls(design[fitted] / gradients_s[fitted, None], np.ones(int(fitted.sum())))
    rest_s = np.maximum(forward_s - attention * attention_s, forward_s / 10)
    forward_weight_s = float(np.median((rest_s / weights)[fitted]))
    peak, whose = _peak(timed)
    predicted = {
        "gradients": (design @ [weight_s, attention_s], gradients_s),
        "no gradients": (weights * forward_weight_s + attention * attention_s, forward_s),
    }
    how = f"{int(fitted.sum())} micro-batches timed on {timed['device']['name']}; of {whose}"
    shares = {"mfu": weight_s, "attention_mfu": attention_s, "forward_mfu": forward_weight_s}
    found = {name: 1 / (peak * seconds) for name, seconds in shares.items() if seconds > 0}
    if "mfu" not in found or max(found.values()) > 1:
        given = ", ".join(f"{name} {value:.3g}" for name, value in found.items()) or "no time"
        raise BadInput(Fault("train", given=given, allowed="0 to 1", message="times that no such device can have"))
    train = Train.model_validate(
        {name: Efficiency(value=value, grade="fitted", how=how).model_dump() for name, value in found.items()}
    )
    repeats = np.array(timed["reference_s"])
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        **timed,
        "peak": {"flops": peak, "whose": whose},
        "train": train.model_dump(mode="json", exclude_none=True),
        "optimizer_bytes_per_s": 30 * timed["optimizer"]["parameters"] / timed["optimizer"]["seconds"],
        "noise": float(np.ptp(repeats) / 2 / repeats.mean()),
        "errors": {
            f"{name}, {which}": errors(ours[rows], real[rows]).model_dump()
            for name, (ours, real) in predicted.items()
            for which, rows in (("fitted", fitted), ("held out", ~fitted))
        },
    }


def _model(told: dict[str, Any]) -> Model:
    return Model(
        hf_name=told["name"],
        table_name=told["name"],
        layers=told["layers"],
        heads=told["heads"],
        kv_heads=told["kv_heads"],
        head_dim=told["head_dim"],
        hidden=told["hidden"],
        # Its input embedding works on no token.
        parameters=told["parameters"] - told["vocab"] * told["hidden"],
        dtype="bf16",
        kv_dtype="bf16",
    )


def _peak(timed: dict[str, Any]) -> tuple[float, str]:
    try:
        return gpu_of_profile(timed["device"]["name"]).flops["bf16"], "its peak in bf16"
    except BadInput:
        return timed["peak_flops"], "the fastest bf16 product seen there"

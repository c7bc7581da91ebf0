"""A profile from a measurement of a real engine on this machine."""

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np

from rollsim.calibration.measured_fit import StepFit, fit_steps, stacked
from rollsim.calibration.measured_steps import MeasuredBatch, host_s, measured_batches, noise
from rollsim.calibration.measurement import Measurement
from rollsim.calibration.residuals import errors
from rollsim.calibration.rounding import rounded
from rollsim.calibration.step_features import Features
from rollsim.simulator import profile_parts as parts
from rollsim.simulator.profile import NAME, SCHEMA_VERSION, Profile
from rollsim.simulator.step_tables import padded
from rollsim.traces.errors import BadInput, Fault

RULES_VERSION = "0.32.0"
_SHAPE = ("layers", "heads", "kv_heads", "head_dim", "hidden", "parameters", "dtype", "kv_dtype")
_BYTES = {"bf16": 2, "fp8": 1}


def check_file(out: Path, name: str | None) -> None:
    """Refuse a file that cannot be written and a name that no profile may have, before anything takes time.

    Raises
    ------
    BadInput
        With every fault.
    """
    faults = []
    if not out.parent.is_dir():
        faults.append(
            Fault("--out", given=str(out), allowed="a file in a folder that exists", message="no such folder")
        )
    elif out.suffix != ".json" or out.is_dir():
        faults.append(Fault("--out", given=str(out), allowed="a file named *.json"))
    if name is not None and not re.fullmatch(NAME, name):
        faults.append(Fault("--name", given=name, allowed="small letters, digits, dots, dashes and underscores"))
    if faults:
        raise BadInput(faults)


def fit_profile(measurement: Measurement, name: str | None = None) -> Profile:
    """Fit the batches that are not held out; the held-out ones only say how wrong it is.

    Raises
    ------
    BadInput
        Nothing was measured, the simulator takes other steps, or the steps cannot tell some term.
    """
    check_shape(measurement)
    batches = measured_batches(measurement, ("fit", "reference", "held_out"))
    used = [batch for batch in batches if batch.role != "held_out"]
    sizes = tuple(measurement.manifest["engine"]["graph_sizes"])
    if (rows := _rows(used, sizes)) is None:
        raise BadInput(Fault(str(measurement.path), message="no batch was measured", allowed="a finished measurement"))
    host = host_s(used)
    overlap = measurement.manifest["engine"]["scheduling"] == "async"
    fit = fit_steps(*rows, str(measurement.path), host or 0.0, overlap=overlap)
    return profile_of(
        measurement,
        fit,
        rows,
        held_out=_rows([batch for batch in batches if batch.role == "held_out"], sizes),
        longest=max(r.prompt_tokens + r.output_tokens for batch in used for r in batch.recording.requests),
        claims=_claims(measurement.manifest, fit, host is not None),
        cautions=_cautions(batches),
        name=name,
    )


def profile_of(
    measurement: Measurement,
    fit: StepFit,
    rows: tuple[Features, np.ndarray],
    *,
    held_out: tuple[Features, np.ndarray] | None,
    longest: int,
    claims: tuple[parts.Claim, ...],
    cautions: tuple[str, ...],
    name: str | None,
) -> Profile:
    """Put a fit and what the manifest tells together.

    Parameters
    ----------
    measurement, fit
    rows, held_out
        Steps and their seconds: those that were fitted to, and others.
    longest
        Longest sequence among the former [tokens].
    claims, cautions
        What the parts rest on, and what a user should know.
    name
        Of the profile; None: after model and device.
    """
    manifest, (steps, seconds) = measurement.manifest, rows
    limits, model = manifest["limits"], _model(manifest["model"])
    return Profile(
        schema_version=SCHEMA_VERSION,
        name=name or _name(manifest),
        model=model,
        gpu=parts.Gpu(name=manifest["device"]["name"], memory_gib=manifest["device"]["memory_gib"]),
        parallelism=parts.Parallelism(tp=1, ep=1, lockstep_ranks=1),
        engine=parts.Engine(
            name=manifest["engine"]["name"],
            timed_version=manifest["engine"]["version"],
            rules_version=RULES_VERSION,
        ),
        scheduling=manifest["engine"]["scheduling"],
        defaults=parts.Defaults(
            max_num_seqs=limits["max_num_seqs"],
            max_num_batched_tokens=limits["max_num_batched_tokens"],
            server_max_num_batched_tokens=limits["max_num_batched_tokens"],
            block_size=limits["block_size"],
            max_model_len=limits["max_model_len"],
            gpu_memory_utilization=1.0,
            graph_ceiling_tokens=0,
            graph_sizes=tuple(manifest["engine"]["graph_sizes"]),
        ),
        kv=parts.Kv(
            num_blocks=limits["num_blocks"],
            bytes_per_token=2 * model.layers * model.kv_heads * model.head_dim * _BYTES[model.kv_dtype],
            obtained="logged",
            how="as the measured engine had them",
        ),
        costs=_costs(fit),
        fit=_fit(fit, steps, seconds, held_out),
        fitted_range=parts.FittedRange(
            decode_batch=(int(fit.decode_batch[0]), int(fit.decode_batch[-1])),
            decode_context_tokens=(1, longest),
            decode_kv_tokens=(1, int(steps.kv_tokens.max())),
            prefill_tokens=(int(fit.prefill_tokens[0]), int(fit.prefill_tokens[-1])),
            prefill_context_tokens=(1, longest),
        ),
        source=_source(measurement),
        claims=claims,
        cautions=cautions,
    )


def check_shape(measurement: Measurement) -> None:
    """Refuse a measurement whose engine did not tell all that a profile states."""
    told = {f"model.{key}": measurement.manifest["model"].get(key) for key in _SHAPE}
    told["device.memory_gib"] = measurement.manifest["device"].get("memory_gib")
    if absent := [place for place, value in told.items() if not value]:
        file = str(measurement.path / "manifest.json")
        message = "the engine did not tell it; a profile needs it"
        raise BadInput(Fault(file, place, allowed="a number above 0", message=message) for place in absent)


def _rows(batches: list[MeasuredBatch], sizes: tuple[int, ...]) -> tuple[Features, np.ndarray] | None:
    """All steps of batches, with as many tokens as are really computed, and their times; None if there are none."""
    if not batches:
        return None
    steps = stacked([batch.features for batch in batches for _ in batch.seconds])
    steps = steps._replace(tokens=padded(steps.tokens, sizes))
    seconds = np.concatenate([repeat for batch in batches for repeat in batch.seconds])
    # A call that schedules nothing ends what the one before began.
    made = steps.tokens > 0
    return Features(*(column[made] for column in steps)), seconds[made]


def _name(manifest: dict[str, Any]) -> str:
    model, device = manifest["model"]["name"].rsplit("/", 1)[-1], manifest["device"]["name"].split(" (")[0]
    how = "torch-measured" if manifest["engine"]["name"] == "torch" else "measured"
    return re.sub(r"[^a-z0-9._]+", "-", f"{model}-{device}-{how}".lower()).strip("-.")


def _model(model: dict[str, Any]) -> parts.Model:
    note = "" if model["dtype"] in ("bfloat16", "fp8") else f"served in {model['dtype']}"
    return parts.Model(
        hf_name=model["name"],
        table_name=model["name"],
        layers=model["layers"],
        heads=model["heads"],
        kv_heads=model["kv_heads"],
        head_dim=model["head_dim"],
        hidden=model["hidden"],
        parameters=model["parameters"],
        dtype="fp8" if model["dtype"] == "fp8" else "bf16",
        kv_dtype="fp8" if model["kv_dtype"].startswith("fp8") else "bf16",
        note=note,
    )


def _costs(fit: StepFit) -> parts.Costs:
    return parts.Costs(
        host_s=rounded(fit.host_s),
        decode=parts.DecodeTable(
            batch=tuple(fit.decode_batch.tolist()),
            dense_s=_rounded(fit.decode_s),
            kv_read_s=_rounded(np.full(len(fit.decode_batch), fit.kv_read_s)),
        ),
        prefill=parts.PrefillTable(
            tokens=tuple(fit.prefill_tokens.tolist()), dense_s=_rounded(fit.prefill_s), attn_s=rounded(fit.attn_s)
        ),
    )


def _rounded(values: np.ndarray) -> tuple[float, ...]:
    return tuple(rounded(float(value)) for value in values)


def _fit(fit: StepFit, steps: Features, seconds: np.ndarray, held_out: tuple[Features, np.ndarray] | None) -> parts.Fit:
    fitted_s, pure = fit.seconds(steps), ~steps.prefill
    regions = {}
    for low, high in zip((0, *fit.decode_batch[:-1]), fit.decode_batch, strict=True):
        inside = pure & (steps.tokens > low) & (steps.tokens <= high)
        if inside.any():
            regions[f"batch {low + 1}-{high}"] = errors(fitted_s[inside], seconds[inside])
    out = {}
    if held_out is not None:
        rows, measured_s = held_out
        for what, inside in (("decode steps", ~rows.prefill), ("steps with prefill", rows.prefill)):
            if inside.any():
                out[f"{what} of held-out batches"] = errors(fit.seconds(rows)[inside], measured_s[inside])
    smallest = fit.prefill_tokens[0]
    names = [
        *(f"decode.dense_s[{batch}]" for batch in fit.decode_batch),
        *(f"prefill.dense_s[{tokens}]" for tokens in fit.prefill_tokens),
        "decode.kv_read_s",
        "prefill.attn_s",
    ]
    return parts.Fit(
        decode=errors(fitted_s[pure], seconds[pure]),
        decode_regions=regions,
        prefill=errors(fitted_s[~pure], seconds[~pure]),
        held_out=out,
        monotone_shift=0.0,
        join_gap=rounded(float(fit.prefill_s[0] / np.interp(smallest, fit.decode_batch, fit.decode_s) - 1), 3),
        rows_used=len(seconds),
        rows_dropped=0,
        covariance=parts.Covariance(names=tuple(names), matrix=tuple(map(_rounded, fit.covariance))),
    )


def _source(measurement: Measurement) -> parts.Source:
    engine = measurement.manifest["engine"]
    manifest = (measurement.path / "manifest.json").read_bytes()
    plain = ", a plain decoder and no inference engine," if engine["name"] == "torch" else ""
    return parts.Source(
        name=f"steps of {engine['name']} {engine['version']} ({engine['build']}){plain} measured on this machine",
        license="own measurement",
        file=measurement.path.name,
        sha256=hashlib.sha256(manifest).hexdigest(),
    )


def _claims(manifest: dict[str, Any], fit: StepFit, has_host: bool) -> tuple[parts.Claim, ...]:
    clock = {"cpu": "CPU time of the engine's process", "wall": "wall time"}[manifest["clock"]]
    how = f"robust non-negative fit to {clock} of designed batches, x {fit.mean_over_fit:.3f} for the mean"
    fitted = ("decode step at the table's batch sizes", "step with prefill", "KV read", "prefill after computed tokens")
    host = parts.Claim(
        part="host time", grade="fitted", how="inside the time of a step: the engine did not tell it apart"
    )
    if has_host:
        told = f"{clock} outside the model: the lower decile of all steps; what grows with the batch is in the step"
        host = parts.Claim(part="host time", grade="measured", how=told)
    between = "linear between the knots of the fit"
    return (
        *(parts.Claim(part=part, grade="fitted", how=how) for part in fitted),
        parts.Claim(part="decode step at other batch sizes", grade="predicted", how=between),
        host,
        parts.Claim(part="KV blocks", grade="measured", how="as the engine reported them"),
        parts.Claim(part="engine limits", grade="measured", how="as the engine reported them"),
    )


def _cautions(batches: list[MeasuredBatch]) -> tuple[str, ...]:
    known = noise(batches)
    if known is None:
        return ("how well the machine repeats itself is not known: fewer than five runs of the reference batch",)
    share, repeats = known
    return (f"the machine repeats itself within {share:.1%} (half of the range of {repeats} interleaved runs)",)

"""A profile from what clients saw of a running server: its decode steps and its prompts, with wider bands."""

from dataclasses import replace

import numpy as np

from rollsim.calibration.measured_fit import StepFit, fit_steps
from rollsim.calibration.measured_profile import check_shape, profile_of
from rollsim.calibration.server_features import came_at_once, http_way_s, stream_steps
from rollsim.calibration.server_measurement import ServerMeasurement
from rollsim.simulator import profile_parts as parts
from rollsim.simulator.profile import Profile
from rollsim.traces.errors import BadInput, Fault

# A share of prompts, and their square: a client has too few to tell more.
_PREFILL_KNOTS = 2
# A client that is busier than this is late itself.
_BUSY = 0.8


def fit_server_profile(measurement: ServerMeasurement, name: str | None = None) -> Profile:
    """Fit the batches that are not held out; the held-out ones only say how wrong it is.

    Raises
    ------
    BadInput
        Nothing was measured, the server is none of vLLM, it did not tell what a profile states, or the streams cannot
        tell some term.
    """
    engine = measurement.manifest["engine"]
    if engine["name"] != "vllm":
        message = "no vLLM: the simulator knows the scheduler of no other server"
        raise BadInput(Fault(str(measurement.path), "engine", engine["name"], "vllm", message=message))
    check_shape(measurement)
    recordings = measurement.recordings()
    used = [kept for kept in recordings.values() if kept["role"] != "held_out"]
    held_out = [kept for kept in recordings.values() if kept["role"] == "held_out"]
    budget, way_s = measurement.manifest["limits"]["max_num_batched_tokens"], http_way_s(used)
    rows, faults = stream_steps(used, budget, way_s), list[Fault]()
    frozen = sum(came_at_once(repeat) for kept in used for repeat in kept["repeats"])
    if frozen:
        message = "tokens came all at once at the end of responses: server or client stood still"
        allowed = "streams that flow; measure longer, on a less busy machine, or a slower model"
        faults.append(Fault(str(measurement.path), given=f"{frozen} runs", allowed=allowed, message=message))
    if not len(rows[1]):
        faults.insert(
            0, Fault(str(measurement.path), message="no batch was measured", allowed="a finished measurement")
        )
        raise BadInput(faults)
    try:
        fit = _joined(fit_steps(*rows, str(measurement.path), prefill_knots=_PREFILL_KNOTS))
    except BadInput as error:
        raise BadInput([*error.faults, *faults]) from None
    others = stream_steps(held_out, budget, way_s)
    return profile_of(
        measurement,
        fit,
        rows,
        held_out=others if len(others[1]) else None,
        longest=max(r["prompt_tokens"] + r["output_tokens"] for kept in used for r in kept["requests"]),
        claims=_claims(measurement, fit.mean_over_fit, way_s),
        cautions=tuple(_cautions(measurement, frozen)),
        name=name,
    )


def _joined(fit: StepFit) -> StepFit:
    """Let no step with prefill take less than a decode step of as many tokens: it may hold decoding requests too."""
    inner = fit.decode_batch[(fit.decode_batch > fit.prefill_tokens[0]) & (fit.decode_batch < fit.prefill_tokens[-1])]
    tokens = np.concatenate([fit.prefill_tokens[:1], inner, fit.prefill_tokens[-1:]])
    n, m = len(fit.decode_batch), len(fit.prefill_tokens)
    # Rows of the weights that make each new value of the old ones.
    line = np.stack([np.interp(tokens, fit.prefill_tokens, unit) for unit in np.eye(m)], axis=1)
    decode = np.stack([np.interp(tokens, fit.decode_batch, unit) for unit in np.eye(n)], axis=1)
    below = line @ fit.prefill_s < decode @ fit.decode_s
    made = np.zeros((n + len(tokens) + 2, n + m + 2))
    made[:n, :n] = np.eye(n)
    made[n:-2, :n] = decode * below[:, None]
    made[n:-2, n : n + m] = line * ~below[:, None]
    made[-2:, -2:] = np.eye(2)
    values = made @ fit.values
    covariance = made @ fit.covariance @ made.T
    return replace(fit, prefill_tokens=tokens, prefill_s=np.maximum.accumulate(values[n:-2]), covariance=covariance)


def _claims(measurement: ServerMeasurement, factor: float, way_s: float) -> tuple[parts.Claim, ...]:
    decode = f"robust fit to the time between tokens where all decode, x {factor:.3f} for the mean"
    prompt = f"robust fit to first tokens of prompts that were alone, less {1e3 * way_s:.1f} ms for HTTP"
    assumed = measurement.manifest["assumed"]
    blocks = "as the server told" if "num_blocks" not in assumed else "enough for all that may run"
    limits = "as the server told, or the user" if not assumed else f"not told: {', '.join(assumed)}"
    return (
        parts.Claim(part="decode step at the table's batch sizes", grade="fitted", how=decode),
        parts.Claim(
            part="decode step at other batch sizes", grade="predicted", how="linear between the knots of the fit"
        ),
        parts.Claim(part="KV read", grade="fitted", how=decode),
        parts.Claim(part="prefill-only step", grade="fitted", how=prompt),
        parts.Claim(part="mixed prefill and decode step", grade="extrapolated", how="as a prefill of so many tokens"),
        parts.Claim(
            part="prefill after computed tokens", grade="extrapolated", how="by token pairs, from whole prompts"
        ),
        parts.Claim(part="host time", grade="assumed", how="inside the time of a step: a client cannot tell it apart"),
        parts.Claim(part="KV blocks", grade="assumed" if "num_blocks" in assumed else "measured", how=blocks),
        parts.Claim(part="engine limits", grade="assumed" if assumed else "measured", how=limits),
    )


def _cautions(measurement: ServerMeasurement, frozen: int) -> list[str]:
    cautions = ["measured through a server: no engine step was seen, and the order of steps was not compared"]
    if (known := measurement.noise()) is not None:
        cautions.append(f"the machine repeats itself within {known[0]:.1%} (half of the range of {known[1]} runs)")
    shares = [repeat["client_share"] for kept in measurement.recordings().values() for repeat in kept["repeats"]]
    busiest = max(shares)
    if busiest > _BUSY:
        cautions.append(f"the client itself was busy for {busiest:.0%} of a run: its times are too long")
    if frozen:
        cautions.append(f"{frozen} of {len(shares)} runs are left out: their tokens came all at once")
    return cautions

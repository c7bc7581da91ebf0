"""Factors on the costs of a config, from the first train steps of a log: step phases and lengths are all it needs.

The steps of the log are simulated as the config says, with the lengths that the log tells of. Each phase then gets one
factor k:

    waiting for trajectories, with all that no phase of the log tells    t = a + k G
    train, and passes without gradients                                  t = fixed + k C
    weight sync                                                          t = k W

G, C and W are simulated seconds. C is what falls with the shares of the peak that a train step reaches and with its
links, told from the rest by a simulation in which these are halved. a and k are those of Theil and Sen (Sen, JASA
63:324, 1968), the other factors medians of the steps' ratios, so that a checkpoint or a restart inside a step moves
none. Where the lengths vary too little to tell a from k, a stays what the config makes of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import theilslopes

from rollsim.calibration.logged_steps import PHASES, LoggedSteps
from rollsim.calibration.logged_world import LoggedWorld, SimulatedSteps
from rollsim.simulator.config import Config
from rollsim.traces.errors import BadInput, Fault

FEWEST = 8
# A slope whose standard error is more than this share of it does not tell a from k.
_TOLD = 0.1
_SCALED = ("mfu", "attention_mfu", "link_bytes_per_s")
_NORMAL_MAD = 1.4826
_MEDIAN_ERROR = 1.2533
_WAITING = ("generate_s", "reward_s", "drain_s")


@dataclass(frozen=True)
class Factor:
    """A fitted number and its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class Phase:
    """A phase of the steps.

    Attributes
    ----------
    name
        In reports.
    measured_s, predicted_s : array [steps]
        Of the steps that are used, fitted ones first.
    """

    name: str
    measured_s: np.ndarray
    predicted_s: np.ndarray


@dataclass(frozen=True)
class LogFit:
    """Factors, and what comes out with them.

    Attributes
    ----------
    factors
        Those that could be told, of ``generation`` (all costs of the engine), ``switch`` (of roles; and the weight sync
        where the log does not tell it), ``train`` (products, attention and links with gradients), ``forward`` (products
        without) and ``weight_sync``.
    rates
        Free parameters of a train step with these factors in them.
    syncs_with_switch
        Whether the factor of the switch is also that of the weight sync.
    phases
        Measured beside predicted.
    fitted
        How many steps they were fitted to, the first ones; the others were held out.
    notes
        What a user should know.
    """

    logged: LoggedSteps
    factors: Mapping[str, Factor]
    rates: Mapping[str, float]
    syncs_with_switch: bool
    phases: tuple[Phase, ...]
    fitted: int
    notes: tuple[str, ...]


def fit_log(
    logged: LoggedSteps,
    config: Config,
    file: str,
    steps: int = 50,
    progress: Callable[[float], None] = lambda _: None,
) -> LogFit:
    """Fit the first steps; the others of the log only say how wrong that is.

    Parameters
    ----------
    logged
        Steps of a run.
    config
        What was run; of its workload nothing is used.
    file
        Of the config, for faults.
    steps
        How many to fit to.
    progress
        Called with the share that is done.

    Raises
    ------
    BadInput
        Too few steps, batches of another size than the config's, or no phase that can be fitted.
    """
    if len(logged) < FEWEST:
        message = "too few steps to fit to"
        raise BadInput(Fault(logged.file, given=len(logged), allowed=f"{FEWEST} or more", message=message))
    used = min(steps, len(logged))
    world = LoggedWorld(config, logged, file)
    known = {name: seconds[:used] for name, seconds in logged.seconds.items()}
    notes, factors = list(logged.notes), dict[str, Factor]()
    first = world.run(used, {})
    progress(0.2)

    untold = ("switch_s",) if "weight_sync_s" in known else ("switch_s", "weight_sync_s")
    waits = "generate_s" in known and first.staleness == 0
    if waits:
        factors |= _waiting(_waited_s(known), first.sum(*_WAITING), first.sum(*untold), notes)
    elif "generate_s" in known:
        notes.append("generation goes on beside training here: what a step waits for it tells no cost")
    rates = dict(first.rates)
    passes = ("train_s",) if "logprob_s" in known else ("train_s", "logprob_s")
    if "train_s" in known:
        halves = (*_SCALED, *(("forward_mfu",) if len(passes) == 2 else ()))
        slower = world.run(used, {name: rates[name] / 2 for name in halves})
        factors["train"] = _scaled(known["train_s"], first.sum(*passes), slower.sum(*passes))
        rates |= _divided(rates, halves, factors["train"].value, logged.file)
    progress(0.4)
    if "logprob_s" in known and first.columns["logprob_s"].any():
        own = world.run(used, rates).columns["logprob_s"]
        slower_s = world.run(used, rates | {"forward_mfu": rates["forward_mfu"] / 2}).columns["logprob_s"]
        factors["forward"] = _scaled(known["logprob_s"], own, slower_s)
        rates |= _divided(rates, ("forward_mfu",), factors["forward"].value, logged.file)
    progress(0.6)
    if "weight_sync_s" in known and first.columns["weight_sync_s"].all():
        factors["weight_sync"] = _median(known["weight_sync_s"] / first.columns["weight_sync_s"])
    if not factors:
        allowed = "seconds of generation, of training or of the weight sync"
        raise BadInput(Fault(logged.file, message="no phase of its steps can be fitted", allowed=allowed))
    last = world.run(len(logged), rates)
    progress(1.0)
    phases = tuple(_phases(logged, last, factors, untold, passes, waits=waits))
    return LogFit(logged, factors, rates, len(untold) == 2, phases, used, tuple(notes))


def _waited_s(seconds: Mapping[str, np.ndarray]) -> np.ndarray:
    """What steps waited for trajectories, and all that no phase tells."""
    if "step_s" not in seconds:
        return np.sum([seconds[name] for name in _WAITING if name in seconds], axis=0)
    others = [seconds[name] for name in PHASES if name in seconds and name not in (*_WAITING, "switch_s")]
    return seconds["step_s"] - np.sum(others, axis=0)


def _waiting(
    measured_s: np.ndarray, simulated_s: np.ndarray, rest_s: np.ndarray, notes: list[str]
) -> dict[str, Factor]:
    """Factors of generation and of the rest."""
    rest = float(np.median(rest_s))
    if np.ptp(simulated_s) > 0:
        slope, start, low, high = map(float, theilslopes(measured_s, simulated_s, alpha=0.68))
        error = (high - low) / 2
        if rest > 0 and start > 0 and 0 < error <= _TOLD * slope:
            return {
                "generation": Factor(slope, error),
                "switch": _median((measured_s - slope * simulated_s) / rest),
            }
    notes.append("lengths vary too little to tell the cost of generation from what it does not depend on")
    own = _median((measured_s - rest_s) / simulated_s)
    if own.value > 0:
        return {"generation": own}
    both = _median(measured_s / (simulated_s + rest_s))
    return {"generation": both, "switch": both}


def _median(ratios: np.ndarray) -> Factor:
    """Median and its standard error, were the ratios normal around it."""
    middle = float(np.median(ratios))
    spread = _NORMAL_MAD * float(np.median(np.abs(ratios - middle)))
    return Factor(middle, _MEDIAN_ERROR * spread / len(ratios) ** 0.5)


def _scaled(measured_s: np.ndarray, simulated_s: np.ndarray, halved_s: np.ndarray) -> Factor:
    """Factor on what doubles where rates are halved; the rest is fixed."""
    scaled_s = halved_s - simulated_s
    return _median((measured_s - (simulated_s - scaled_s)) / scaled_s)


def _divided(rates: Mapping[str, float], names: tuple[str, ...], factor: float, file: str) -> dict[str, float]:
    """Rates with a factor on the time that they set."""
    shares = [name for name in names if name != "link_bytes_per_s"]
    if factor <= 0 or any(rates[name] / factor > 1 for name in shares):
        given = "no time" if factor <= 0 else f"{max(rates[name] / factor for name in shares):.1f} times the peak"
        message = "its train steps are faster than the GPUs of the config can be: is all of it what was run?"
        raise BadInput(Fault(file, ", ".join(shares), given, "1 or less of the peak", message=message))
    return {name: rates[name] / factor for name in names}


def _phases(
    logged: LoggedSteps,
    last: SimulatedSteps,
    factors: Mapping[str, Factor],
    untold: tuple[str, ...],
    passes: tuple[str, ...],
    *,
    waits: bool,
) -> list[Phase]:
    known = logged.seconds
    phases = []
    if waits:
        switch = factors["switch"].value if "switch" in factors else 1.0
        predicted_s = factors["generation"].value * last.sum(*_WAITING) + switch * last.sum(*untold)
        phases.append(Phase("generation and the rest", _waited_s(known), predicted_s))
    if "train" in factors:
        phases.append(
            Phase(" and ".join(name.removesuffix("_s") for name in passes), known["train_s"], last.sum(*passes))
        )
    if "forward" in factors:
        phases.append(Phase("logprob", known["logprob_s"], last.columns["logprob_s"]))
    if "weight_sync" in factors:
        predicted_s = factors["weight_sync"].value * last.columns["weight_sync_s"]
        phases.append(Phase("weight sync", known["weight_sync_s"], predicted_s))
    if len(phases) > 1:
        measured_s = np.sum([phase.measured_s for phase in phases], axis=0)
        phases.append(Phase("all of these", measured_s, np.sum([phase.predicted_s for phase in phases], axis=0)))
    return phases

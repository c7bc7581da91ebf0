"""A training log beside its simulation: the seconds of each phase of a step, and where the gap is.

The steps are simulated as a config says, with the lengths that the log tells of and nothing fitted. A phase that the
log does not tell apart is added to the one that it is logged in: passes without gradients to training, rewards and
drains to the wait for trajectories, all else to the rest of a step. Checkpoints and validations are left out of both.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy.stats import rankdata

from rollsim.calibration.logged_steps import PHASES, LoggedSteps
from rollsim.calibration.logged_world import LoggedWorld
from rollsim.simulator.config import Config
from rollsim.simulator.wording import wrap
from rollsim.traces.step_kpis import PARTS

FORMAT = "rollsim-log-beside"
SCHEMA_VERSION = 1
_APART = ("checkpoint_s", "validation_s")
_INTO = {"logprob_s": "train_s", "reward_s": "generate_s", "drain_s": "generate_s"}
_REST = "rest_s"
_LABELS = PARTS | {_REST: "the rest of a step"}
_HINTS = {
    "generate_s": "costs of the engine (calibrate measure, or fit --from-log), its host time, tensor parallelism",
    "reward_s": "workload.reward_s",
    "logprob_s": "train.forward_mfu",
    "train_s": "train.mfu, train.attention_mfu, the backend and its parallelism",
    "drain_s": "the policy of weight_sync",
    "weight_sync_s": "sync.path",
    "switch_s": "the sleep level of the engine, offloads",
    _REST: "what the loop of the framework does between its phases; rollsim has switches and syncs there",
}
# A gap of less than this share of a step is none worth naming.
_SMALL = 0.02


def beside(logged: LoggedSteps, config: Config, file: str) -> dict[str, Any]:
    """Simulate the steps of a log and lay them beside it.

    Parameters
    ----------
    logged
    config
        What was run; of its workload nothing is used.
    file
        Of the config, for faults.

    Raises
    ------
    BadInput
        The batches of the log are not those of the config.
    """
    columns = LoggedWorld(config, logged, file).run(len(logged), {}).columns
    measured, simulated = _phases(logged.seconds, columns)
    rows = [_row(name, measured[name], simulated[name]) for name in measured]
    step = _row("step_s", *(np.sum(list(side.values()), axis=0) for side in (measured, simulated)))
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "log": logged.file,
        "config": file,
        "profile": config.model.profile,
        "steps": len(logged),
        "phases": rows,
        "step": step,
        "notes": list(logged.notes),
    }


def _phases(
    logged: Mapping[str, np.ndarray], columns: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Seconds of the phases that the log tells apart: array [steps] each, logged and simulated."""
    told = [name for name in PHASES if name in logged and name not in _APART]
    measured = {name: logged[name] for name in told}
    simulated = {name: np.zeros(len(columns["t0_s"])) for name in told}
    if "step_s" in logged:
        apart = [logged[name] for name in (*told, *_APART) if name in logged]
        measured[_REST] = logged["step_s"] - np.sum(apart, axis=0)
        simulated[_REST] = np.zeros(len(columns["t0_s"]))
    for name in PHASES:
        into = next((place for place in (name, _INTO.get(name), _REST) if place in simulated), None)
        if into is not None and name not in _APART:
            simulated[into] = simulated[into] + columns[name]
    return measured, simulated


def _row(name: str, measured: np.ndarray, simulated: np.ndarray) -> dict[str, Any]:
    """Means, the gap, and whether steps that took longer are those of which it was simulated."""
    varied = np.ptp(measured) > 0 and np.ptp(simulated) > 0
    order = float(np.corrcoef(rankdata(measured), rankdata(simulated))[0, 1]) if varied else None
    mean, other = float(measured.mean()), float(simulated.mean())
    return {
        "name": name,
        "measured_s": mean,
        "simulated_s": other,
        "gap_s": other - mean,
        "error": other / mean - 1 if mean > 0 else None,
        "order": order,
    }


def text(said: dict[str, Any]) -> str:
    """Lay out a document, at most 80 columns."""
    return "\n".join(_lines(said))


def _lines(said: dict[str, Any]) -> Iterator[str]:
    yield from wrap(f"{said['log']}: {said['steps']} steps beside {said['config']} with {said['profile']}")
    yield ""
    yield f"{'MEANS OF THE STEPS':<27}{'logged':>10}{'simulated':>11}{'gap':>10}{'error':>9}{'order':>8}"
    for row in (*said["phases"], said["step"]):
        label = _LABELS.get(row["name"], "all of these")
        error = "" if row["error"] is None else f"{row['error']:+.1%}"
        order = "" if row["order"] is None else f"{row['order']:+.2f}"
        seconds = "".join(f"{row[key]:>{width}.4g} s" for key, width in (("measured_s", 8), ("simulated_s", 9)))
        yield f"{label:<27}{seconds}{row['gap_s']:>+8.3g} s{error:>9}{order:>8}"
    yield from wrap(
        "Nothing is fitted to the log; its lengths are used. order: rank correlation over the steps of what was logged "
        "and what was simulated. Checkpoints and validations are left out."
    )
    yield ""
    yield from wrap(_named(said))
    for note in said["notes"]:
        yield from wrap(f"note: {note}", indent=6)


def _named(said: dict[str, Any]) -> str:
    """The gap in a sentence."""
    step = said["step"]
    if abs(step["gap_s"]) < _SMALL * step["measured_s"] and all(
        abs(row["gap_s"]) < _SMALL * step["measured_s"] for row in said["phases"]
    ):
        return "No phase is further from its simulation than 2 % of a step."
    longest = max(said["phases"], key=lambda row: abs(row["gap_s"]))
    more = "longer" if step["gap_s"] > 0 else "shorter"
    share = f", {abs(longest['gap_s'] / step['measured_s']):.0%} of a step"
    return (
        f"The simulated step is {abs(step['gap_s']):.3g} s {more}. The largest gap is {longest['gap_s']:+.3g} s of "
        f"{_LABELS[longest['name']]}{share}: look at {_HINTS[longest['name']]}. `rollsim calibrate fit --from-log` "
        "fits a factor to each phase."
    )

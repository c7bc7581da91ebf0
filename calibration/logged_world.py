"""The train steps of a log, simulated as a config says with the lengths that the log tells of."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rollsim.calibration.logged_lengths import spread_lengths
from rollsim.calibration.logged_steps import LoggedSteps
from rollsim.simulator.config import Config
from rollsim.simulator.setup import resolve
from rollsim.simulator.simulate import simulate
from rollsim.traces.errors import BadInput, Fault


@dataclass(frozen=True)
class SimulatedSteps:
    """Simulated steps.

    Attributes
    ----------
    columns
        Seconds of each phase, by column of the table ``steps``.
    rates
        Free parameters of a train step that were used.
    staleness
        Mean over the steps.
    """

    columns: Mapping[str, np.ndarray]
    rates: Mapping[str, float]
    staleness: float

    def sum(self, *names: str) -> np.ndarray:
        """Seconds of some phases together, of each step."""
        return np.sum([self.columns[name] for name in names], axis=0)


class LoggedWorld:
    """A world that has the lengths of a log.

    Parameters
    ----------
    config
        What was run; its workload is replaced.
    logged
    file
        Of the config, for faults.

    Raises
    ------
    BadInput
        The batches of the log are not those of the config, or no lengths have the means that it tells.
    """

    def __init__(self, config: Config, logged: LoggedSteps, file: str) -> None:
        self._config, self._file = config, file
        self._groups = config.train.prompts_per_step
        self._size = config.train.samples_per_prompt
        _check_size(logged, self._groups, self._size, file)
        self._trace = _trace(logged, self._groups, self._size)

    def run(self, count: int, rates: Mapping[str, float]) -> SimulatedSteps:
        """Simulate the first `count` steps, with some free parameters of a train step changed."""
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "logged.parquet"
            pq.write_table(self._trace.slice(0, count * self._groups * self._size), trace)
            setup = resolve(self._config_of(str(trace), count, rates), self._file)
        steps = simulate(setup).tables["steps"]
        return SimulatedSteps(
            {name: np.nan_to_num(steps[name].to_numpy()) for name in steps.schema.names if name.endswith("_s")},
            {name: value.value for name, value in setup.train_values.items()},
            float(np.mean(steps["staleness_mean"].to_numpy())),
        )

    def _config_of(self, trace: str, count: int, rates: Mapping[str, float]) -> Config:
        config = self._config
        workload = config.workload.model_copy(
            update={"trace": trace, "law": None, "order": "recorded", "cap_tokens": None, "drift": None}
        )
        changed: dict[str, Any] = {"steps": count, "validate_every": 0, "checkpoint_every": 0, "warm_up_s": 0.0}
        train = config.train.model_copy(update=changed | dict(rates))
        return config.model_copy(update={"workload": workload, "train": train})


def _check_size(logged: LoggedSteps, groups: int, size: int, file: str) -> None:
    if logged.trajectories is None:
        return
    count = float(np.median(logged.trajectories))
    if abs(count / (groups * size) - 1) > 0.02:
        given = f"{groups:,} x {size:,} = {groups * size:,} trajectories"
        message = f"the steps of {logged.file} have {count:,.0f}"
        place = "train.prompts_per_step, train.samples_per_prompt"
        raise BadInput(Fault(file, place, given, message=message))


def _trace(logged: LoggedSteps, groups: int, size: int) -> pa.Table:
    """All batches after one another; which response is in which group is random, the same in every call."""
    rng = np.random.default_rng(0)
    batch, outputs, faults = groups * size, [], []
    for i in range(len(logged)):
        mean, longest, cut = logged.output_tokens[i], int(logged.longest_tokens[i]), logged.cut_share[i]
        try:
            outputs.append(rng.permutation(spread_lengths(float(mean), longest, float(cut), batch)))
        except ValueError as error:
            message = "no lengths have these figures"
            faults.append(Fault(logged.file, f"step {logged.number[i]}", str(error), message=message))
    if faults:
        raise BadInput(faults)
    return pa.table(
        {
            "prompt_tokens": np.repeat(np.maximum(1, np.rint(logged.prompt_tokens)).astype(np.int64), batch),
            "output_tokens": np.concatenate(outputs),
            "group_id": np.repeat(np.arange(len(logged) * groups), size),
        }
    )

"""Step metrics under a framework's names, in a file that it, or its tracker, could have written.

A meaning that a framework splits is written under the first of its names; a round trip keeps the sum.
"""

import json
from collections.abc import Iterator, Mapping

import numpy as np

from rollsim.traces.metric_names import METRIC_NAMES, STEP_NAMES, parse

# Definitions of the framework that the columns cannot meet.
_NOT_WRITTEN = {
    "slime": {"rollout_tokens_per_gpu_s"}, "nemo-rl": {"rollout_tokens_per_gpu_s", "trainer_wait_s"},
    "prime-rl": {"trainer_wait_s"},
}  # fmt: skip


def carried(framework: str) -> dict[str, str]:
    """Return what a framework's step metrics can carry: meaning to the name that is written."""
    dropped = _NOT_WRITTEN.get(framework, set())
    return {
        meaning: parse(names[framework])[0][0].replace("*", "env")
        for meaning, names in METRIC_NAMES.items()
        if framework in names and meaning not in dropped
    }


def metric_log(framework: str, values: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Yield the lines of the file.

    Parameters
    ----------
    framework
        A name in `rollsim.traces.metric_names.FRAMEWORKS`.
    values
        From `rollsim.traces.exporters.step_values.step_values`.
    """
    rows = list(_rows(framework, values))
    if framework == "trl":
        yield json.dumps({"log_history": [{"step": step} | row for step, _, row in rows]}, indent=2) + "\n"
        return
    for step, ended_s, row in rows:
        yield json.dumps(_record(framework, step, ended_s, row)) + "\n"


def _record(framework: str, step: int, ended_s: float, row: dict[str, float]) -> dict[str, object]:
    clock = {"time" if framework == "prime-rl" else "_timestamp": ended_s} if np.isfinite(ended_s) else {}
    if framework == "verl":
        return {"step": step, "data": row}
    if framework == "prime-rl":
        return {"step": step, **clock, **row}
    return {"_step": step, **clock, **dict.fromkeys(STEP_NAMES.get(framework, ())[:1], step), **row}


def _rows(framework: str, values: Mapping[str, np.ndarray]) -> Iterator[tuple[int, float, dict[str, float]]]:
    if framework == "skyrl" and {"step_s", "validation_s"} <= values.keys():
        values = {**values, "step_s": values["step_s"] - np.nan_to_num(values["validation_s"])}
    names = {meaning: name for meaning, name in carried(framework).items() if meaning in values}
    steps = values["step"]
    ends_s = values.get("ended_s", np.full(len(steps), np.nan))
    for index, step in enumerate(steps.tolist()):
        known = {name: values[meaning][index] for meaning, name in names.items()}
        row = {name: float(value) for name, value in known.items() if np.isfinite(value)}
        yield int(step), float(ends_s[index]), row

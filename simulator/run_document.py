"""All that is said of a run, as JSON: computed from its tables, with what it rests on beside."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollsim.simulator.replay_run import FORMAT as REPLAY_FORMAT
from rollsim.traces.bubble import bubbles, fates
from rollsim.traces.kpis import kpis
from rollsim.traces.run import Run
from rollsim.traces.schema import build
from rollsim.traces.slowest import slowest
from rollsim.traces.staleness import staleness
from rollsim.traces.step_kpis import step_kpis, wall_clock

FORMAT = "rollsim-run-summary"
LOG_FORMAT = "rollsim-log-summary"
SCHEMA_VERSION = 1
HORIZON_STEPS = 1000
NEEDED = (
    "output_tokens", "prompt_tokens", "t_submit_s", "t_start_s", "t_first_token_s", "t_end_s", "queue_s",
    "is_truncated",
    "cached_tokens", "recomputed_tokens", "num_preempted", "replica", "status", "version_start", "version_end",
    "version_trained", "group_id", "step_trained", "is_extra", "fate",
)  # fmt: skip


def document(tables: Mapping[str, pa.Table], basis: Mapping[str, Any] | None) -> dict[str, Any]:
    """Compute it.

    Parameters
    ----------
    tables
        Those that there are; without train steps what is said of steps is None.
    basis
        From `rollsim.simulator.basis.basis`; None where it is not known, as for a run that another program wrote.
    """
    rollouts, steps = tables["rollouts"], tables.get("steps")
    numbers = kpis(tables)
    loop = step_kpis(tables) if steps is not None and len(steps) else None
    age, slow = staleness(rollouts), slowest(rollouts, steps, loop.span_s if loop else None)
    price = basis["cluster"]["usd_per_gpu_hour"] if basis else None
    usd_per_s = price * basis["cluster"]["gpus"] / 3600 if basis and price is not None else None
    counts = sorted({loop.steps, max(loop.steps, HORIZON_STEPS)}) if loop else []
    clocks = [wall_clock(steps, count, usd_per_s) for count in counts] if steps is not None else []
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "steps": loop.document() if loop else None,
        "wall_clock": [clock.document() for clock in clocks if clock],
        "bubble": [use.document() for use in bubbles(numbers.ledger)],
        "fates": [fate.document() for fate in fates(tables.get("ledger"))],
        "staleness": age.document() if age else None,
        "slowest": slow.document() if slow else None,
        "extra_share": pc.mean(rollouts["is_extra"].cast(pa.int8())).as_py(),
        "kpis": numbers.document(),
        "basis": dict(basis) if basis is not None else None,
    }


def log_document(tables: Mapping[str, pa.Table], log: Mapping[str, Any]) -> dict[str, Any]:
    """Compute the same of an imported log, with what was found in it, from `ImportedLog.document`, beside."""
    whole = {"rollouts": build("rollouts", {"reward": np.empty(0)})} | dict(tables)
    return document(whole, None) | {"format": LOG_FORMAT, "log": dict(log)}


def stored_document(run: Run) -> dict[str, Any]:
    """Read a run folder and compute the same; a replay's own document is in its summary."""
    if run.summary.get("format") == REPLAY_FORMAT:
        return run.summary
    tables = {name: run.table(name) for name in ("steps", "gauges", "ledger") if name in run.tables}
    tables["rollouts"] = run.table("rollouts", list(NEEDED))
    if isinstance(log := run.summary.get("log"), dict):
        return log_document(tables, log)
    basis = run.summary.get("basis")
    return document(tables, basis if isinstance(basis, dict) else None)

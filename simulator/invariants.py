"""Invariants that the tables of a run alone can decide; the others are held where they could break, or by two runs."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollsim.simulator.leases import Lease
from rollsim.traces.labels import has_label
from rollsim.traces.schema import FATES

LEDGER_ROUNDING = 1e-9
CLOCK_ROUNDING = 1e-9
SHOWN_ROWS = 10


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes
    ----------
    id
        Of the invariant.
    checked
        What was checked, and against what.
    ok
        It holds.
    worst
        The value furthest from what is allowed; None if there was nothing to check.
    table, rows, count
        Offending rows of that table, at most `SHOWN_ROWS` of `count`.
    """

    id: str
    checked: str
    ok: bool
    worst: float | None = None
    table: str | None = None
    rows: tuple[int, ...] = ()
    count: int = 0

    def document(self) -> dict[str, object]:
        """Return it as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        state = "holds" if self.ok else "BROKEN"
        at = f"; {self.count} rows of {self.table}, first {list(self.rows)}" if self.count else ""
        worst = "" if self.worst is None else f"; worst {self.worst:.6g}"
        return f"{self.id} {state}: {self.checked}{worst}{at}"


def check(
    tables: Mapping[str, pa.Table],
    *,
    gpus: int,
    span_s: float,
    hard_eta: int | None = None,
    streams: bool = False,
    leases: Iterable[Lease] = (),
) -> list[Finding]:
    """Check INV-1 to INV-6 and INV-12.

    Parameters
    ----------
    tables
        All tables of the run.
    gpus
        GPUs of the cluster.
    span_s
        From time 0 to the end of the run.
    hard_eta
        Staleness [versions] that nothing consumed may exceed; None if there is no hard bound.
    streams
        A step takes in groups while it trains: rewards may come up to its end.
    leases
        All leases, for INV-12.
    """
    rollouts, steps = tables["rollouts"], tables["steps"]
    findings = [
        _ledger(tables["ledger"], gpus, span_s),
        *_tokens(rollouts, tables),
        *_kv(tables["gauges"]),
        *_staleness(rollouts, hard_eta),
        *_consumed(rollouts, steps),
        *_order(rollouts, steps, streams),
    ]
    held = list(leases)
    return findings + ([_leased(held, gpus)] if held else [])


def same(id: str, checked: str, a: Mapping[str, pa.Table], b: Mapping[str, pa.Table]) -> Finding:
    """Check that two runs have identical tables (INV-7, or INV-8 on the tables that must agree)."""
    different = [
        name for name in dict.fromkeys([*a, *b]) if name not in a or name not in b or not a[name].equals(b[name])
    ]
    table = different[0] if different else None
    return Finding(id, checked, not different, float(len(different)), table, (), len(different))


def _ledger(ledger: pa.Table, gpus: int, span_s: float) -> Finding:
    gpu_s = ledger["gpu_s"].to_numpy()
    whole = gpus * span_s
    off = abs(math.fsum(gpu_s.tolist()) - whole) / whole if whole else float(gpu_s.sum() != 0)
    negative = np.flatnonzero(gpu_s < -LEDGER_ROUNDING * whole)
    checked = f"the ledger sums to {gpus} GPUs x {span_s:.6g} s, relative error; no line is negative"
    return _finding("INV-1", checked, negative, "ledger", off, off <= LEDGER_ROUNDING)


def _tokens(rollouts: pa.Table, tables: Mapping[str, pa.Table]) -> list[Finding]:
    output = _numbers(rollouts, "output_tokens", 0)
    trained, discarded, undecided = (has_label(rollouts["fate"], name) for name in FATES)
    finished = has_label(rollouts["status"], "finished")
    kinds = (trained, discarded, undecided & finished, undecided & ~finished)
    sums = [int(output[kind].sum()) for kind in kinds]
    total = int(output.sum())
    odd = np.flatnonzero(np.sum(kinds, axis=0) != 1)
    stepped = _numbers(rollouts, "step_trained", -1) >= 0
    wrong = np.flatnonzero((trained != stepped) | (trained & ~finished))
    checked = "tokens generated = trained {} + discarded {} + buffered {} + in flight {}".format(*sums)
    found = [
        _finding("INV-2", checked, odd, "rollouts", float(total - sum(sums)), total == sum(sums)),
        _finding(
            "INV-2", "trained, and only these, have a step and are finished", wrong, "rollouts", float(len(wrong))
        ),
    ]
    if "segments" in tables:
        segments = tables["segments"]
        decoded = pc.sum(segments.filter(pc.equal(segments["kind"].cast(pa.string()), "decode"))["tokens"]).as_py() or 0
        done = int(output[finished].sum())
        checked = f"segments hold at least the {done} tokens of finished trajectories"
        found.append(Finding("INV-2", checked, decoded >= done, float(decoded - done), "segments"))
    return found


def _kv(gauges: pa.Table) -> list[Finding]:
    used, total = gauges["kv_used_blocks"].to_numpy(), gauges["kv_total_blocks"].to_numpy()
    bad = np.flatnonzero((used > total) | (used < 0))
    worst = float((used - total).max()) if len(used) else None
    idle = gauges["running"].to_numpy() == 0
    kept = np.flatnonzero(idle & (used > 0))
    most = float(used[idle].max()) if idle.any() else None
    return [
        _finding("INV-3", "KV blocks in use less those there are, in every sample", bad, "gauges", worst),
        _finding("INV-3", "KV blocks in use where nothing runs: all are freed", kept, "gauges", most),
    ]


def _staleness(rollouts: pa.Table, hard_eta: int | None) -> list[Finding]:
    start, trained = _numbers(rollouts, "version_start", -1), _numbers(rollouts, "version_trained", -1)
    known = (start >= 0) & (trained >= 0)
    age = np.where(known, trained - start, 0)
    backward = np.flatnonzero(age < 0)
    worst = float(age.max()) if known.any() else None
    found = [_finding("INV-4", "nothing is trained by weights older than its own", backward, "rollouts", worst)]
    if hard_eta is not None:
        bad = np.flatnonzero(age > hard_eta)
        found.append(_finding("INV-4", f"staleness at most {hard_eta}, a hard bound", bad, "rollouts", worst))
    return found


def _consumed(rollouts: pa.Table, steps: pa.Table) -> list[Finding]:
    names = rollouts["sample_id"]
    twice = len(names) - pc.count_distinct(names).as_py()
    found = [Finding("INV-5", "every trajectory has one row", not twice, float(twice), "rollouts", (), twice)]
    step = _numbers(rollouts, "step_trained", -1)
    taken = step >= 0
    number = steps["step"].to_numpy()
    size = int(max(number.max(initial=-1), step.max(initial=-1))) + 1
    for name, weights in (
        ("trajectories", None),
        ("prompt_tokens", "prompt_tokens"),
        ("output_tokens", "output_tokens"),
    ):
        of = None if weights is None else _numbers(rollouts, weights, 0)[taken]
        off = steps[name].to_numpy() - np.bincount(step[taken], of, size)[number]
        worst = float(np.abs(off).max()) if len(off) else None
        checked = f"{name} of each step are those of the rollouts it consumed"
        found.append(_finding("INV-5", checked, np.flatnonzero(off != 0), "steps", worst))
    strangers = np.flatnonzero(taken & ~np.isin(step, number))
    return [*found, _finding("INV-5", "what is trained is in a step", strangers, "rollouts", float(len(strangers)))]


def _order(rollouts: pa.Table, steps: pa.Table, streams: bool) -> list[Finding]:
    """Time never runs back, but for the rounding of the clock; what is not known is skipped."""
    names = ("t_submit_s", "t_start_s", "t_first_token_s", "t_end_s", "t_final_s")
    found = []
    for earlier, later in pairwise(names):
        found.append(_rises(_times(rollouts, earlier), _times(rollouts, later), f"{earlier} to {later}", "rollouts"))
    number, step = steps["step"].to_numpy(), _numbers(rollouts, "step_trained", -1)
    limit = "t1_s" if streams else "t0_s"
    begins_s = np.full(int(max(number.max(initial=-1), step.max(initial=-1))) + 2, np.nan)
    begins_s[number] = steps[limit].to_numpy()
    train_s = begins_s[step]  # the last entry, NaN, is that of step -1
    found.append(_rises(_times(rollouts, "t_final_s"), train_s, f"t_final_s to {limit} of the step", "rollouts"))
    begin_s, end_s = steps["t0_s"].to_numpy(), steps["t1_s"].to_numpy()
    found.append(_rises(begin_s, end_s, "t0_s to t1_s", "steps"))
    found.append(_rises(end_s[:-1], begin_s[1:], "t1_s of a step to t0_s of the next", "steps"))
    return found


def _rises(earlier_s: np.ndarray, later_s: np.ndarray, what: str, table: str) -> Finding:
    back_s = earlier_s - later_s
    known = ~np.isnan(back_s)
    allowed_s = CLOCK_ROUNDING * np.maximum(1.0, np.abs(later_s))
    bad = np.flatnonzero(known & (back_s > allowed_s))
    worst = float(back_s[known].max()) if known.any() else None
    return _finding("INV-6", f"seconds that time runs back from {what}", bad, table, worst)


def _leased(leases: list[Lease], gpus: int) -> Finding:
    """No GPU has two leases at once."""
    count = np.array([lease.count for lease in leases])
    number = np.repeat(np.arange(len(leases)), count)
    gpu = (
        np.repeat([lease.first for lease in leases], count)
        + np.arange(len(number))
        - np.repeat(np.cumsum(count) - count, count)
    )
    t0_s = np.array([lease.t0_s for lease in leases])[number]
    t1_s = np.array([np.inf if lease.t1_s is None else lease.t1_s for lease in leases])[number]
    order = np.lexsort((t0_s, gpu))
    over_s = np.where(np.diff(gpu[order]) == 0, t1_s[order][:-1] - t0_s[order][1:], -np.inf)
    outside = number[(gpu < 0) | (gpu >= gpus)]
    bad = np.unique(np.concatenate([number[order][1:][over_s > 0], outside]))
    finite = over_s[np.isfinite(over_s)]
    worst = float(finite.max()) if len(finite) else None
    return _finding("INV-12", "seconds that two leases of a GPU overlap", bad, "leases", worst)


def _finding(id: str, checked: str, bad: np.ndarray, table: str, worst: float | None, also: bool = True) -> Finding:
    return Finding(id, checked, also and not len(bad), worst, table, tuple(bad[:SHOWN_ROWS].tolist()), len(bad))


def _numbers(table: pa.Table, name: str, unknown: int) -> np.ndarray:
    return table[name].fill_null(unknown).to_numpy()


def _times(table: pa.Table, name: str) -> np.ndarray:
    return table[name].to_numpy()

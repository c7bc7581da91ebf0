"""Two runs, or two sets of replications, paired: differences with intervals, and the ledger lines that explain them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.interval import Interval, interval
from rollsim.traces.measured import LOOP, REPLAY, Measured


@dataclass(frozen=True)
class Difference:
    """One number of A and of B over the pairs, and B - A with its paired interval; None where not known."""

    name: str
    unit: str
    label: str
    a: float | None
    b: float | None
    difference: Interval


@dataclass(frozen=True)
class Explained:
    """A ledger line in seconds per GPU (and step) of A and of B, and B - A."""

    pool: str
    category: str
    cause: str | None
    a_s: float
    b_s: float
    difference_s: float


@dataclass(frozen=True)
class Comparison:
    """B against A.

    Attributes
    ----------
    pairing
        What a pair is: ``seed`` for replications, ``step`` for the steps of two single runs, ``none`` for two single
        runs without steps.
    pairs
        Number of pairs.
    differences
        Headline numbers. Paired by step, those that no single step has come without an interval.
    explained
        Ledger lines, largest difference first; they add up to `explained_total_s`.
    explained_total_s
        Difference in mean step time, or in the span of runs without steps.
    notes
        What a reader should know.
    """

    pairing: str
    pairs: int
    differences: tuple[Difference, ...]
    explained: tuple[Explained, ...]
    explained_total_s: float
    notes: tuple[str, ...]

    def document(self) -> dict[str, object]:
        """Return it as JSON."""
        return asdict(self)


def compare(a: Sequence[Measured], b: Sequence[Measured]) -> Comparison:
    """Compare two sets of runs, each with at least one.

    The interval of a difference is that of the mean of the differences of pairs: t(n - 1) at 95 %.

    Raises
    ------
    BadInput
        If runs with and without train steps are mixed, or several replications share no seed.
    """
    if len({bool(run.steps) for run in (*a, *b)}) > 1:
        raise BadInput(Fault("A and B", message="runs with train steps and runs without cannot be compared"))
    names = LOOP if a[0].steps else REPLAY
    notes = []
    if len(a) == len(b) == 1:
        pairing = "step" if a[0].steps else "none"
        rows, pairs = _by_step(a[0], b[0], names)
        if a[0].steps != b[0].steps:
            notes.append(
                f"A has {a[0].steps} steps and B {b[0].steps}: paired are the first {pairs}, but the ledger is of all"
            )
        if a[0].seed != b[0].seed:
            notes.append("the two runs have different seeds: the differences are of chance, too")
        if a[0].steps:
            notes.append("one replication each: the steps of a run depend on each other; the interval is a guide")
    else:
        a, b = _common(a, b, notes)
        pairing, pairs = "seed", len(a)
        rows = [_difference(name, names[name], _column(a, name), _column(b, name)) for name in names]
    lines = _explained(a, b)
    return Comparison(pairing, pairs, tuple(rows), lines, sum(line.difference_s for line in lines), tuple(notes))


def _common(a: Sequence[Measured], b: Sequence[Measured], notes: list[str]) -> tuple[list[Measured], list[Measured]]:
    one, other = ({run.seed: run for run in runs if run.seed is not None} for runs in (a, b))
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        given = f"A: {sorted(one)}, B: {sorted(other)}"
        raise BadInput(Fault("A and B", "seed", given, "replications of the same seeds", message="nothing to pair"))
    if left := len(a) + len(b) - 2 * len(seeds):
        notes.append(f"{left} replications have no partner of the same seed and are left out")
    return [one[seed] for seed in seeds], [other[seed] for seed in seeds]


def _by_step(a: Measured, b: Measured, names: dict[str, tuple[str, str]]) -> tuple[list[Difference], int]:
    pairs = min(a.steps, b.steps) if a.steps else 1
    rows = []
    for name, words in names.items():
        if name in a.by_step and name in b.by_step:
            values = a.by_step[name][:pairs], b.by_step[name][:pairs]
        else:
            values = _column([a], name), _column([b], name)
        rows.append(_difference(name, words, *values))
    return rows, pairs


def _column(runs: Sequence[Measured], name: str) -> np.ndarray:
    values = [run.headline.get(name) for run in runs]
    return np.array([np.nan if value is None else value for value in values])


def _difference(name: str, words: tuple[str, str], a: np.ndarray, b: np.ndarray) -> Difference:
    known = ~np.isnan(a + b)
    mean_a, mean_b = (float(values[known].mean()) if known.any() else None for values in (a, b))
    label, unit = words
    return Difference(name, unit, label, mean_a, mean_b, interval(b - a))


def _explained(a: Sequence[Measured], b: Sequence[Measured]) -> tuple[Explained, ...]:
    keys = list(dict.fromkeys(key for run in (*a, *b) for key in run.lines))
    rows = []
    for key in keys:
        a_s, b_s = (sum(run.lines.get(key, 0.0) for run in runs) / len(runs) for runs in (a, b))
        pool, category, cause = key
        rows.append(Explained(pool, category, cause, a_s, b_s, b_s - a_s))
    return tuple(sorted(rows, key=lambda row: (-abs(row.difference_s), row.pool, row.category, row.cause or "")))

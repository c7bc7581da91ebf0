"""The slowest hundredth of the trajectories, and what they cost the rest."""

from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollsim.traces.labels import has_label

PERCENT = 1


@dataclass(frozen=True)
class Slowest:
    """The slowest `PERCENT` % by the time from submission to the end.

    Attributes
    ----------
    trajectories, of
        How many, and among how many that ended.
    from_s
        The fastest of them took so long.
    mean_s, others_mean_s
        Mean time of them and of the others.
    token_share
        Their share of the generated tokens of all that ended.
    discarded
        Those of them that no step will use.
    steps
        Train steps that consumed some of them, and others.
    waited_s
        Time that the trainer waited for them alone: from the end of the last other trajectory of a step to the end of
        the last of all, as far as the trainer waited then for a batch or for the pool to drain. None without steps.
    waited_share
        That of the time of all steps.
    """

    trajectories: int
    of: int
    from_s: float
    mean_s: float
    others_mean_s: float
    token_share: float
    discarded: int
    steps: int
    waited_s: float | None
    waited_share: float | None

    def document(self) -> dict[str, object]:
        """Return the numbers as JSON."""
        return asdict(self)


COLUMNS = ["t_submit_s", "t_end_s", "output_tokens", "step_trained", "fate"]


def slowest(rollouts: pa.Table, steps: pa.Table | None = None, span_s: float | None = None) -> Slowest | None:
    """Measure the slowest; None with fewer than 100 / `PERCENT` trajectories that ended.

    Parameters
    ----------
    rollouts
        Needs `COLUMNS`.
    steps
        Train steps; those of a log that does not say when each trained tell nothing of waits.
    span_s
        Time of all steps.
    """
    known = pc.and_(pc.is_valid(rollouts["t_end_s"]), pc.is_valid(rollouts["t_submit_s"]))
    ended = rollouts.select(COLUMNS).filter(known)
    n = len(ended)
    count = n * PERCENT // 100
    if not count:
        return None
    end_s = ended["t_end_s"].to_numpy()
    took_s = end_s - ended["t_submit_s"].to_numpy()
    slow = np.zeros(n, bool)
    slow[np.argpartition(took_s, n - count)[n - count :]] = True
    tokens = ended["output_tokens"].fill_null(0).to_numpy()
    total = int(tokens.sum(dtype=np.int64))
    timed = steps is not None and steps["t0_s"].null_count == steps["t1_s"].null_count == 0
    hit, waited_s = (0, None) if steps is None or not timed else _waited(ended["step_trained"], end_s, slow, steps)
    return Slowest(
        trajectories=count,
        of=n,
        from_s=float(took_s[slow].min()),
        mean_s=float(took_s[slow].mean()),
        others_mean_s=float(took_s[~slow].mean()),
        token_share=int(tokens[slow].sum(dtype=np.int64)) / total if total else 0.0,
        discarded=int(has_label(ended["fate"], "discarded")[slow].sum()),
        steps=hit,
        waited_s=waited_s,
        waited_share=waited_s / span_s if waited_s is not None and span_s else None,
    )


def _waited(step_trained: pa.ChunkedArray, end_s: np.ndarray, slow: np.ndarray, steps: pa.Table) -> tuple[int, float]:
    """Steps with slow and other trajectories, and the seconds that the trainer waited for the slow ones alone."""
    trained = pc.is_valid(step_trained).to_numpy()
    step = step_trained.fill_null(0).to_numpy()
    last_s = np.full((2, int(step.max(initial=0)) + 1), -np.inf)
    for kind, members in enumerate((trained & ~slow, trained & slow)):
        np.maximum.at(last_s[kind], step[members], end_s[members])
    hit = np.flatnonzero(np.isfinite(last_s).all(axis=0))
    others_s, slow_s = last_s[:, hit]
    # What the trainer waited for before an earlier step began was another batch.
    ordered = steps.sort_by("step")
    number, t0_s = ordered["step"].to_numpy(), ordered["t0_s"].to_numpy()
    before_s = np.append(-np.inf, t0_s)[np.searchsorted(number, hit)]
    from_s = np.maximum(others_s, before_s)
    return len(hit), float((_waiting_s(ordered, np.maximum(slow_s, from_s)) - _waiting_s(ordered, from_s)).sum())


def _waiting_s(steps: pa.Table, t_s: np.ndarray) -> np.ndarray:
    """Seconds that the trainer has waited up to some times: before steps for their batch, and after them to drain."""
    begin_s, end_s = steps["t0_s"].to_numpy(), steps["t1_s"].to_numpy()
    generate_s, drain_s = (steps[name].fill_null(0.0).to_numpy() for name in ("generate_s", "drain_s"))
    waits = np.array([[begin_s - generate_s, begin_s], [end_s, end_s + drain_s]])
    edges = np.maximum.accumulate(waits.transpose(2, 0, 1).ravel())
    waited = np.cumsum(np.diff(edges, prepend=edges[:1]) * (np.arange(len(edges)) % 2))
    return np.interp(t_s, edges, waited) if len(edges) else np.zeros(len(t_s))

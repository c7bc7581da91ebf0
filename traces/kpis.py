"""Headline numbers of a run, from its tables alone: the same code for simulated and for real runs.

Every time is in seconds, from the tables' own zero. A number that the tables cannot support is None.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from rollsim.traces.held import Held, held
from rollsim.traces.labels import has_label
from rollsim.traces.tail import Tail, tail

PERCENTS = (50, 95, 99)


@dataclass(frozen=True)
class Spread:
    """A distribution over `n` trajectories.

    `percentiles` holds P50, P95 and P99 as nearest ranks: the smallest value that at least that share of the sample
    does not exceed. With fewer than 1 / (1 - q) values one is refused, since it would be the maximum: None.
    """

    n: int
    mean: float | None
    percentiles: dict[str, float | None]
    max: float | None


@dataclass(frozen=True)
class Load:
    """State of one replica over time: means are weighted by time, shares are of the KV blocks."""

    replica: int
    covered_s: float
    running_mean: float | None
    running_max: float | None
    waiting_mean: float | None
    waiting_max: float | None
    kv_share_mean: float | None
    kv_share_max: float | None


@dataclass(frozen=True)
class LedgerShare:
    """GPU-seconds of one pool, category and cause, and their share of all."""

    pool: str
    category: str
    cause: str | None
    gpu_s: float
    share: float


@dataclass(frozen=True)
class Kpis:
    """Headline numbers.

    Attributes
    ----------
    makespan_s
        From the first submission to the last end.
    output_tokens_per_s, requests_per_s
        Over the makespan; requests are those that finished.
    output_tokens_per_gpu_s
        Output tokens per GPU-second that the ledger's rollout pool holds.
    first_token_s, completion_s, queue_s
        From submission to the first token, to the end, and to the first admission.
    per_output_token_s
        From the first token to the end, per token after the first.
    recomputed_share
        Of all tokens prefilled, those prefilled again after a preemption.
    cached_share
        Of all prompt tokens, those found in the prefix cache at first admission.
    load
        One entry a replica, from the gauges.
    ledger
        Largest first.
    """

    trajectories: int
    finished: int
    truncated: int
    prompt_tokens: int
    output_tokens: int
    makespan_s: float | None
    output_tokens_per_s: float | None
    requests_per_s: float | None
    output_tokens_per_gpu_s: float | None
    first_token_s: Spread
    completion_s: Spread
    queue_s: Spread
    per_output_token_s: Spread
    preemptions: int
    preempted_trajectories: int
    recomputed_tokens: int
    recomputed_share: float | None
    cached_tokens: int
    cached_share: float | None
    tail: Tail | None
    load: tuple[Load, ...]
    gpu_s: float
    ledger: tuple[LedgerShare, ...]

    def document(self) -> dict[str, object]:
        """Return the numbers as JSON."""
        return asdict(self)


def kpis(tables: Mapping[str, pa.Table]) -> Kpis:
    """Compute the headline numbers.

    Parameters
    ----------
    tables
        ``rollouts``, and ``gauges`` and ``ledger`` where there are any, as in `rollsim.traces.schema`.
    """
    rollouts = tables["rollouts"]
    times = ("t_submit_s", "t_start_s", "t_first_token_s", "t_end_s")
    submit_s, start_s, first_s, end_s = (_floats(rollouts, name) for name in times)
    prompt, output, cached, recomputed, preempted, replica = (
        _counts(rollouts, name)
        for name in ("prompt_tokens", "output_tokens", "cached_tokens", "recomputed_tokens", "num_preempted", "replica")
    )
    finished = int(has_label(rollouts["status"], "finished").sum())
    makespan_s = _span(submit_s, end_s)
    queue_s = _floats(rollouts, "queue_s")
    ledger, gpu_s = _ledger(tables.get("ledger"))
    rollout_gpu_s = sum(row.gpu_s for row in ledger if row.pool == "rollout")
    decode_s = _elapsed_s(end_s, first_s)
    with np.errstate(invalid="ignore", divide="ignore"):
        per_token_s = np.where(output > 1, decode_s / (output - 1), np.nan) if len(decode_s) else decode_s
    prefilled = int(prompt.sum()) - int(cached.sum()) + int(recomputed.sum())
    return Kpis(
        trajectories=len(rollouts),
        finished=finished,
        truncated=int(_counts(rollouts, "is_truncated").sum()),
        prompt_tokens=int(prompt.sum()),
        output_tokens=int(output.sum()),
        makespan_s=makespan_s,
        output_tokens_per_s=_ratio(int(output.sum()), makespan_s),
        requests_per_s=_ratio(finished, makespan_s),
        output_tokens_per_gpu_s=_ratio(int(output.sum()), rollout_gpu_s),
        first_token_s=spread(_elapsed_s(first_s, submit_s)),
        completion_s=spread(_elapsed_s(end_s, submit_s)),
        queue_s=spread(_queue_s(queue_s, start_s, submit_s)),
        per_output_token_s=spread(per_token_s),
        preemptions=int(preempted.sum()),
        preempted_trajectories=int((preempted > 0).sum()),
        recomputed_tokens=int(recomputed.sum()),
        recomputed_share=_ratio(int(recomputed.sum()), prefilled),
        cached_tokens=int(cached.sum()),
        cached_share=_ratio(int(cached.sum()), int(prompt.sum())),
        tail=tail(start_s, first_s, end_s, output, replica, makespan_s),
        load=load(tables.get("gauges")),
        gpu_s=gpu_s,
        ledger=ledger,
    )


def spread(values: np.ndarray) -> Spread:
    """Describe a sample; NaN entries are left out."""
    ordered = np.sort(values[~np.isnan(values)])
    n = len(ordered)
    percentiles = {f"p{p}": float(ordered[-(-p * n // 100) - 1]) if n * (100 - p) >= 100 else None for p in PERCENTS}
    return Spread(n, float(ordered.mean()) if n else None, percentiles, float(ordered[-1]) if n else None)


def load(gauges: pa.Table | None) -> tuple[Load, ...]:
    """Describe each replica from its gauges: a sample holds until the next one of the same replica."""
    if gauges is None or not len(gauges):
        return ()
    samples = held(gauges)
    running, waiting, kv = (_means(samples, samples.columns[name]) for name in ("running", "waiting", "kv_share"))
    return tuple(
        Load(int(replica), float(covered_s), *running[i], *waiting[i], *kv[i])
        for i, (replica, covered_s) in enumerate(zip(samples.replicas, samples.covered_s, strict=True))
    )


def _means(samples: Held, values: np.ndarray) -> list[tuple[float | None, float | None]]:
    """Time-weighted mean and maximum per replica; None where nothing is known, or for no time."""
    maxima = np.fmax.reduceat(values, samples.first)
    known = ~np.isnan(values)
    weights = np.where(known, samples.dt_s, 0.0)
    known_s = np.add.reduceat(weights, samples.first)
    sums = np.add.reduceat(weights * np.where(known, values, 0.0), samples.first)
    return [
        (float(total / time) if time > 0 else None, None if np.isnan(top) else float(top))
        for total, time, top in zip(sums, known_s, maxima, strict=True)
    ]


def _ledger(table: pa.Table | None) -> tuple[tuple[LedgerShare, ...], float]:
    if table is None or not len(table):
        return (), 0.0
    keys = ["pool", "category", "cause"]
    plain = pa.table({name: table[name].cast(pa.string()) for name in keys} | {"gpu_s": table["gpu_s"]})
    summed = plain.group_by(keys).aggregate([("gpu_s", "sum")]).to_pylist()
    total = sum(row["gpu_s_sum"] for row in summed)
    rows = [
        LedgerShare(gpu_s=(gpu_s := row.pop("gpu_s_sum")), share=gpu_s / total if total else 0.0, **row)
        for row in summed
    ]
    return tuple(sorted(rows, key=lambda row: (-row.gpu_s, row.pool, row.category, row.cause or ""))), total


def _span(submit_s: np.ndarray, end_s: np.ndarray) -> float | None:
    span_s = np.fmax.reduce(end_s, initial=np.nan) - np.fmin.reduce(submit_s, initial=np.nan)
    return None if np.isnan(span_s) else float(span_s)


def _ratio(part: float, whole: float | None) -> float | None:
    return part / whole if whole else None


def _elapsed_s(later_s: np.ndarray, earlier_s: np.ndarray) -> np.ndarray:
    """Return differences; none if nothing is known of either."""
    unknown = 0 in later_s.strides + earlier_s.strides
    return np.empty(0) if unknown else later_s - earlier_s


def _queue_s(queue_s: np.ndarray, start_s: np.ndarray, submit_s: np.ndarray) -> np.ndarray:
    """Return logged times in the queue, and from submission to start where there are none."""
    waited_s = _elapsed_s(start_s, submit_s)
    if not len(waited_s):
        return queue_s if queue_s.strides != (0,) else waited_s
    return waited_s if queue_s.strides == (0,) else np.where(np.isnan(queue_s), waited_s, queue_s)


def _floats(table: pa.Table, name: str) -> np.ndarray:
    """Return a column of times; one of which nothing is known takes no memory."""
    unknown = table[name].null_count == len(table)
    return np.broadcast_to(np.nan, len(table)) if unknown else table[name].to_numpy()


def _counts(table: pa.Table, name: str) -> np.ndarray:
    """Return a column of whole numbers or flags; what is not known counts as 0, and if nothing is, takes no memory."""
    if table[name].null_count == len(table):
        return np.broadcast_to(0, len(table))
    column = table[name].cast(pa.int8()) if pa.types.is_boolean(table[name].type) else table[name]
    return column.fill_null(0).to_numpy() if column.null_count else column.to_numpy()

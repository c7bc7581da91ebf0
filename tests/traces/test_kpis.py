"""Headline numbers against hand calculations on tiny tables, and against plain loops on random ones."""

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from rollsim.traces.kpis import kpis, load, spread
from rollsim.traces.schema import build
from rollsim.traces.timeline import timeline


def rollouts(**columns) -> pa.Table:
    arrays = {name: np.asarray(values) for name, values in columns.items() if not isinstance(values, str)}
    return build("rollouts", columns | arrays)


def gauges(rows: list[tuple[float, int, int, int, int]], replica=0, total=10) -> pa.Table:
    t_s, running, waiting, used, preempted = map(np.array, zip(*rows, strict=True))
    columns = {"t_s": t_s, "running": running, "waiting": waiting, "kv_used_blocks": used, "num_preempted": preempted}
    return build("gauges", columns | {"replica": replica, "kv_total_blocks": total})


@pytest.fixture
def tiny() -> dict[str, pa.Table]:
    """Two replicas, four trajectories; all numbers can be checked by head."""
    return {
        "rollouts": rollouts(
            t_submit_s=[0.0, 0.0, 1.0, 1.0],
            t_start_s=[0.0, 1.0, 1.0, 2.0],
            t_first_token_s=[1.0, 2.0, 2.0, 3.0],
            t_end_s=[3.0, 4.0, 6.0, 11.0],
            prompt_tokens=[10, 10, 20, 20],
            output_tokens=[3, 1, 5, 9],
            cached_tokens=[0, 8, 0, 16],
            recomputed_tokens=[0, 0, 30, 0],
            num_preempted=[0, 0, 2, 0],
            is_truncated=[False, False, False, True],
            replica=[0, 1, 0, 1],
            status="finished",
        ),
        "gauges": pa.concat_tables(
            [
                gauges([(1.0, 2, 1, 5, 0), (3.0, 1, 0, 10, 2), (6.0, 0, 0, 0, 2)]),
                gauges([(2.0, 2, 0, 4, 0), (4.0, 1, 0, 2, 1), (12.0, 0, 0, 0, 1)], replica=1),
            ]
        ),
        "ledger": build(
            "ledger",
            {
                "pool": "rollout",
                "category": pa.array(["decode", "idle", "idle", "decode"]),
                "cause": pa.array([None, "a", "b", None]),
                "gpu_s": np.array([10.0, 4.0, 5.0, 1.0]),
            },
        ),
    }


def test_counts_and_rates_by_hand(tiny):
    found = kpis(tiny)
    assert (found.trajectories, found.finished, found.truncated) == (4, 4, 1)
    assert found.makespan_s == 11.0
    assert found.output_tokens == 18
    assert found.output_tokens_per_s == 18 / 11
    assert found.requests_per_s == 4 / 11
    assert found.output_tokens_per_gpu_s == 18 / 20
    assert (found.preemptions, found.preempted_trajectories, found.recomputed_tokens) == (2, 1, 30)
    assert found.recomputed_share == 30 / (60 - 24 + 30)
    assert found.cached_share == 24 / 60


def test_latencies_by_hand(tiny):
    found = kpis(tiny)
    assert found.first_token_s.mean == (1 + 2 + 1 + 2) / 4
    assert found.completion_s.mean == (3 + 4 + 5 + 10) / 4
    assert found.completion_s.max == 10
    assert found.queue_s.mean == (0 + 1 + 0 + 1) / 4
    assert (found.per_output_token_s.n, found.per_output_token_s.mean) == (3, (2 / 2 + 4 / 4 + 8 / 8) / 3)


def test_tail_by_hand():
    """Ten trajectories end at 1..10 s: the tail is from 9 to 10 s, with one of them in it."""
    ends = np.arange(1.0, 11.0)
    table = rollouts(
        t_submit_s=0 * ends, t_start_s=0 * ends, t_first_token_s=0 * ends, t_end_s=ends, output_tokens=[10] * 10,
        replica=[0] * 5 + [1] * 5, status="finished",
    )  # fmt: skip
    tail = kpis({"rollouts": table}).tail
    assert tail is not None
    assert (tail.start_s, tail.seconds, tail.share, tail.trajectories) == (9.0, 1.0, 0.1, 1)
    assert tail.running_mean == 1.0 / 2
    assert tail.output_tokens == 1


def test_load_by_hand(tiny):
    first, second = load(tiny["gauges"])
    assert (first.replica, first.covered_s, first.running_max) == (0, 5.0, 2)
    assert first.running_mean == (2 * 2 + 3 * 1) / 5
    assert first.waiting_mean == 2 / 5
    assert first.kv_share_mean == pytest.approx((2 * 0.5 + 3 * 1.0) / 5, abs=1e-15)
    assert (second.covered_s, second.kv_share_max) == (10.0, 0.4)


def test_ledger_sums_equal_causes_and_adds_up(tiny):
    found = kpis(tiny)
    assert [(row.category, row.cause, row.gpu_s, row.share) for row in found.ledger] == [
        ("decode", None, 11.0, 0.55),
        ("idle", "b", 5.0, 0.25),
        ("idle", "a", 4.0, 0.2),
    ]
    assert found.gpu_s == 20.0


def test_timeline_by_hand(tiny):
    early, late = timeline(tiny["gauges"], slices=2)
    assert (early.t0_s, early.t1_s, late.t1_s) == (1.0, 6.5, 12.0)
    assert early.running == pytest.approx((2 * 2 + 3 * 1 + 2 * 2 + 2.5 * 1) / 5.5)
    assert late.running == pytest.approx(5.5 * 1 / 5.5)
    assert early.kv_share == pytest.approx((2 * 0.5 + 3 * 1.0 + 2 * 0.4 + 2.5 * 0.2) / 5.5 / 2)
    assert (early.preemptions, late.preemptions) == (3, 3)
    assert timeline(tiny["gauges"], slices=2, replicas=4)[0].kv_share == pytest.approx(early.kv_share / 2)


@pytest.mark.parametrize(("n", "known"), [(0, ""), (1, ""), (2, "50"), (19, "50"), (20, "50 95"), (99, "50 95"),
                                          (100, "50 95 99")])  # fmt: skip
def test_a_percentile_that_the_sample_cannot_support_is_refused(n, known):
    found = spread(np.arange(n, dtype=float))
    assert [name for name, value in found.percentiles.items() if value is not None] == [f"p{p}" for p in known.split()]


def test_percentiles_are_nearest_ranks():
    found = spread(np.random.default_rng(1).permutation(np.arange(1.0, 201.0)))
    assert found.percentiles == {"p50": 100.0, "p95": 190.0, "p99": 198.0}
    assert (found.n, found.mean, found.max) == (200, 100.5, 200.0)


def test_what_is_not_known_is_none_not_zero():
    """A log with lengths alone, as some frameworks write."""
    found = kpis({"rollouts": rollouts(output_tokens=[5, 6])})
    assert found.output_tokens == 11
    assert (found.makespan_s, found.output_tokens_per_s, found.tail, found.load, found.ledger) == (None,) * 3 + ((), ())
    assert found.completion_s.n == 0
    assert found.completion_s.mean is None


@pytest.mark.parametrize("seed", range(20))
def test_random_tables_against_plain_loops(seed):
    rng = np.random.default_rng(seed)
    n, replicas = int(rng.integers(1, 60)), int(rng.integers(1, 4))
    submit = rng.uniform(0, 5, n)
    start = submit + rng.exponential(1, n)
    first = start + rng.exponential(1, n)
    end = first + rng.exponential(5, n)
    end[rng.random(n) < 0.2] = np.nan
    output, replica = rng.integers(1, 50, n), rng.integers(0, replicas, n)
    table = rollouts(
        t_submit_s=submit, t_start_s=start, t_first_token_s=first, t_end_s=end, output_tokens=output,
        prompt_tokens=rng.integers(1, 9, n), replica=replica, status="in_flight",
    )  # fmt: skip
    parts = []
    for r in range(replicas):
        rows = int(rng.integers(1, 9))
        columns = [np.sort(rng.uniform(0, 9, rows)), *rng.integers(0, 9, (3, rows)), np.sort(rng.integers(0, 9, rows))]
        parts.append(gauges(list(zip(*columns, strict=True)), replica=r))
    gauge = pa.concat_tables(parts)
    shuffled = gauge.take(pa.array(rng.permutation(len(gauge))))
    found = kpis({"rollouts": table, "gauges": shuffled})

    ends = sorted(e for e in end if not math.isnan(e))
    if not ends:
        assert found.tail is None
        return
    begin = ends[math.ceil(0.9 * len(ends) - 1e-9) - 1]
    running = tokens = 0.0
    for a, f, e, o in zip(start, first, end, output, strict=True):
        if not math.isnan(e) and e > begin:
            running += e - max(a, begin)
            tokens += o * (e - max(f, begin)) / (e - f)
    assert found.tail is not None
    assert found.tail.start_s == begin
    assert found.tail.output_tokens == round(tokens)
    if ends[-1] > begin:
        assert found.tail.running_mean == pytest.approx(running / (ends[-1] - begin) / len(set(replica)))
    for r, row in enumerate(found.load):
        samples = parts[r].to_pylist()
        area = sum(a["running"] * (b["t_s"] - a["t_s"]) for a, b in pairwise(samples))
        if len(samples) > 1:
            assert row.running_mean == pytest.approx(area / (samples[-1]["t_s"] - samples[0]["t_s"]))
        assert row.running_max == max(sample["running"] for sample in samples)

    slices = timeline(shuffled, slices=4)
    for part in slices:
        area = 0.0
        for samples in (p.to_pylist() for p in parts):
            for a, b in pairwise(samples):
                area += a["waiting"] * max(0.0, min(b["t_s"], part.t1_s) - max(a["t_s"], part.t0_s))
        assert part.waiting == pytest.approx(area / (part.t1_s - part.t0_s))
    assert not slices or slices[-1].preemptions == sum(p["num_preempted"][-1].as_py() for p in parts)


def test_the_document_is_plain_json(tiny):
    import json

    assert json.loads(json.dumps(kpis(tiny).document(), allow_nan=False))["output_tokens"] == 18

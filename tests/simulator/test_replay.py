"""Replaying a request trace: what goes where, equality with a replica driven by hand, and the ledger."""

import json
import re
import time
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.replay import check_fit, deal, parents, replay
from rollsim.simulator.replica import Replica
from rollsim.traces.errors import BadInput
from rollsim.traces.kpis import kpis
from rollsim.traces.requests import RequestTrace, read_requests
from rollsim.traces.timeline import timeline

LIMITS = EngineLimits(
    max_num_seqs=12, max_num_batched_tokens=64, block_size=4, num_blocks=60, max_model_len=160, async_scheduling=True
)


def cost(limits: EngineLimits) -> StepCost:
    return StepCost.affine(
        limits.max_num_batched_tokens * limits.lockstep_ranks, limits.max_num_seqs, host_s=1e-3,
        overlap=limits.async_scheduling, base_s=4e-3, token_s=1e-5, mixed_token_s=3e-5, kv_read_s=1e-6,
        prefill_attn_s=1e-7,
    )  # fmt: skip


def requests(rng: np.random.Generator, n: int, *, arrivals: bool = False, grouped: bool = True) -> RequestTrace:
    group = np.sort(rng.integers(0, max(1, n // 4), n)) if grouped else np.full(n, -1)
    group[rng.random(n) < 0.2] = -1
    prompts = rng.integers(1, 40, n + 1)
    return RequestTrace(
        path="made up",
        ids=pa.array([f"r{i}" for i in range(n)]),
        arrival_s=np.append(0.0, np.sort(rng.uniform(0, 3, n - 1))) if arrivals else np.zeros(n),
        prompt_tokens=np.where(group >= 0, prompts[group], prompts[:n]),
        output_tokens=np.minimum(rng.geometric(0.03, n), 100),
        group=group,
        priority=rng.integers(-(2**50), 2**50, n),
        rows=np.arange(1, n + 1),
        unit="row",
        content_hash="",
        notes=(),
    )


def by_hand(trace: RequestTrace, limits: EngineLimits, chosen: np.ndarray) -> dict[str, object]:
    """Fate of some requests on one replica, dispatched one by one."""
    replica = Replica(limits, cost(limits))
    leaders: dict[int, str] = {}
    for i in chosen:
        id, group = trace.ids[int(i)].as_py(), int(trace.group[i])
        leader = leaders.get(group) if group >= 0 else None
        prompt = int(trace.prompt_tokens[i])
        shared = 0 if leader is None else prompt
        replica.dispatch(
            float(trace.arrival_s[i]), id, prompt, int(trace.output_tokens[i]), parent=leader, shared_tokens=shared,
            priority=int(np.searchsorted(np.unique(trace.priority), trace.priority[i])), rank=0,
        )  # fmt: skip
        if group >= 0:
            leaders.setdefault(group, id)
    replica.run()
    return replica.results()


@pytest.mark.parametrize("arrivals", [False, True])
@pytest.mark.parametrize("change", [{}, {"async_scheduling": False}, {"policy": "priority"}, {"prefix_caching": False}])
def test_replay_equals_replicas_driven_by_hand(arrivals, change):
    limits = replace(LIMITS, **change)
    trace = requests(np.random.default_rng(7), 90, arrivals=arrivals)
    table = replay(trace, limits, cost(limits), replicas=2).tables["rollouts"].to_pydict()
    replica, _ = deal(trace, 2, 1)
    assert table["replica"] == replica.tolist()
    for number in (0, 1):
        results = by_hand(trace, limits, np.flatnonzero(replica == number))
        for i in np.flatnonzero(replica == number):
            fate = results[table["sample_id"][i]]
            assert table["t_first_token_s"][i] == fate.first_token_s
            assert table["t_end_s"][i] == fate.finish_s
            assert table["output_tokens"][i] == fate.output_tokens
            assert table["num_preempted"][i] == fate.preemptions
            assert table["cached_tokens"][i] == fate.cached_tokens
            assert table["recomputed_tokens"][i] == fate.recomputed_tokens
    assert sum(table["num_preempted"]) > 0


@pytest.mark.parametrize("seed", range(8))
def test_inv_1_ledger_sums_to_gpus_times_span_and_idle_is_time_without_requests(seed):
    """Idle is checked against the tables: a replica is busy while it has a request that has not ended."""
    rng = np.random.default_rng(seed)
    replicas, gpus = int(rng.integers(1, 6)), int(rng.integers(1, 9))
    limits = replace(LIMITS, async_scheduling=bool(seed % 2), lockstep_ranks=1 + seed % 3)
    trace = requests(rng, int(rng.integers(1, 40)), arrivals=seed > 1, grouped=seed % 2 == 0)
    result = replay(trace, limits, cost(limits), replicas=replicas, gpus_per_replica=gpus)
    ledger = result.tables["ledger"]
    assert sum(ledger["gpu_s"].to_pylist()) == pytest.approx(replicas * gpus * result.span_s, rel=1e-9, abs=0)
    assert min(ledger["gpu_s"].to_pylist()) >= 0
    rows = result.tables["rollouts"].to_pydict()
    idle_s = {"no request on the replica": 0.0, "no request was dealt to the replica": 0.0}
    for number in range(replicas):
        spans = sorted(
            (t0, t1)
            for t0, t1, r in zip(rows["t_submit_s"], rows["t_end_s"], rows["replica"], strict=True)
            if r == number
        )
        busy_until = float(trace.arrival_s[0])
        for t0, t1 in spans:
            idle_s["no request on the replica"] += max(0.0, t0 - busy_until)
            busy_until = max(busy_until, t1)
        if not spans:
            idle_s["no request was dealt to the replica"] += result.span_s
    for cause, category, gpu_s in zip(
        *(ledger[name].to_pylist() for name in ("cause", "category", "gpu_s")), strict=True
    ):
        if category == "idle":
            assert gpu_s == pytest.approx(idle_s[cause] * gpus, rel=1e-9, abs=1e-9)
        assert category != "tail_bubble" or replicas > 1 or gpu_s == 0


def test_a_batch_at_time_0_has_no_idle_time():
    ledger = replay(requests(np.random.default_rng(1), 200), LIMITS, cost(LIMITS)).tables["ledger"].to_pylist()
    assert {row["category"]: row["gpu_s"] for row in ledger}["idle"] == 0


@pytest.mark.parametrize("delay_s", [0.0, 5.0, 1e4, 1e8])
@pytest.mark.parametrize("arrivals", [False, True])
@pytest.mark.parametrize("replicas", [1, 4])
def test_time_begins_at_the_first_arrival(delay_s, arrivals, replicas):
    """The engines are not held before: when a trace begins changes no duration, rate or ledger row."""
    trace = requests(np.random.default_rng(8), 60, arrivals=arrivals)
    later = replace(trace, arrival_s=trace.arrival_s + delay_s)
    one, other = (replay(t, LIMITS, cost(LIMITS), replicas=replicas) for t in (trace, later))
    # Arrivals at 1e8 s are given to 15 ns.
    same = {"rel": 1e-7, "abs": 1e-6}
    assert other.span_s == pytest.approx(one.span_s, **same)
    ledgers = [run.tables["ledger"]["gpu_s"].to_numpy() for run in (one, other)]
    assert ledgers[1] == pytest.approx(ledgers[0], **same)
    assert ledgers[1].sum() == pytest.approx(replicas * other.span_s, rel=1e-9)
    assert other.tables["rollouts"]["t_submit_s"].to_pylist() == later.arrival_s.tolist()
    numbers = [kpis(run.tables) for run in (one, other)]
    for name in ("makespan_s", "output_tokens_per_s", "requests_per_s", "output_tokens_per_gpu_s"):
        assert getattr(numbers[1], name) == pytest.approx(getattr(numbers[0], name), **same), name
    slices = [timeline(run.tables["gauges"]) for run in (one, other)]
    assert slices[1][0].t0_s == later.arrival_s[0]
    for before, after in zip(*slices, strict=True):
        assert after.t1_s - delay_s == pytest.approx(before.t1_s, **same)
        assert (after.running, after.kv_share) == pytest.approx((before.running, before.kv_share), rel=1e-3, abs=1e-3)


def test_a_hundred_thousand_replicas_cost_what_the_busy_ones_cost():
    trace = requests(np.random.default_rng(8), 60)
    busy = int(deal(trace, 100_000, 1)[0].max()) + 1
    begin = time.process_time()
    few = replay(trace, LIMITS, cost(LIMITS), replicas=busy)
    few_s, begin = time.process_time() - begin, time.process_time()
    many = replay(trace, LIMITS, cost(LIMITS), replicas=100_000)
    many_s = time.process_time() - begin
    assert many_s < few_s + 0.3
    for name in ("rollouts", "gauges"):
        assert many.tables[name].equals(few.tables[name])
    idle = {row["cause"]: row["gpu_s"] for row in many.tables["ledger"].to_pylist()}
    assert idle["no request was dealt to the replica"] == (100_000 - busy) * many.span_s


def test_deal_keeps_groups_together_and_takes_them_in_turn():
    trace = requests(np.random.default_rng(3), 400)
    replica, rank = deal(trace, 5, 2)
    for group in np.unique(trace.group[trace.group >= 0]):
        member = trace.group == group
        assert len(set(zip(replica[member], rank[member], strict=True))) == 1
    single = np.where(trace.group < 0, -1 - np.arange(400), trace.group)
    first = np.sort(np.unique(single, return_index=True)[1])
    assert replica[first].tolist() == [i % 5 for i in range(len(first))]
    assert rank[first].tolist() == [i // 5 % 2 for i in range(len(first))]


def test_parents_are_the_first_of_each_group():
    assert parents(np.array([7, -1, 3, 7, 3, -1, 7])).tolist() == [-1, -1, -1, 0, 2, -1, 0]


def test_replicas_do_not_know_of_each_other():
    """The requests of one replica alone end as they do among others."""
    trace = requests(np.random.default_rng(5), 120, arrivals=True)
    replica, _ = deal(trace, 3, 1)
    together = replay(trace, LIMITS, cost(LIMITS), replicas=3).tables["rollouts"]
    for number in range(3):
        alone = replay(trace.select(replica == number), LIMITS, cost(LIMITS)).tables["rollouts"]
        chosen = together.filter(pa.array(replica == number))
        for column in ("sample_id", "t_start_s", "t_first_token_s", "t_end_s", "num_preempted", "cached_tokens"):
            same = chosen[column].to_pylist()
            if column.startswith("t_"):  # each begins its clock at its own first arrival
                same = pytest.approx(same, rel=1e-12, abs=1e-12)
            assert alone[column].to_pylist() == same


def test_group_members_find_the_prompt_of_the_first_in_the_cache():
    """Blocks of 4 tokens: of a prompt of 22, five full blocks can be shared."""
    n = 8
    trace = replace(
        requests(np.random.default_rng(0), n), group=np.zeros(n, int), prompt_tokens=np.full(n, 22),
        output_tokens=np.full(n, 2),
    )  # fmt: skip
    table = replay(trace, LIMITS, cost(LIMITS)).tables["rollouts"]
    assert table["cached_tokens"].to_pylist() == [0] + [20] * (n - 1)
    off = replace(LIMITS, prefix_caching=False)
    assert sum(replay(trace, off, cost(off)).tables["rollouts"]["cached_tokens"].to_pylist()) == 0


def test_inv_7_the_same_input_gives_the_same_tables():
    trace = requests(np.random.default_rng(2), 150, arrivals=True)
    first, second = (replay(trace, LIMITS, cost(LIMITS), replicas=2) for _ in range(2))
    assert all(first.tables[name].equals(second.tables[name]) for name in first.tables)


def test_gauges_end_empty_and_never_exceed_the_pool():
    """INV-3: blocks in use stay within the pool and are all free at the end."""
    gauges = replay(requests(np.random.default_rng(4), 300), LIMITS, cost(LIMITS)).tables["gauges"]
    used = gauges["kv_used_blocks"].to_numpy()
    assert used.max() <= LIMITS.num_blocks
    assert (used[-1], gauges["running"][-1].as_py(), gauges["waiting"][-1].as_py()) == (0, 0, 0)
    assert (np.diff(gauges["t_s"].to_numpy()) >= 0).all()


@pytest.mark.parametrize("n", [50, 3000])
def test_gauges_hold_the_mean_batch_of_a_long_run(n):
    """More events than gauge rows: the mean over time is still that of the requests' own times."""
    limits = replace(LIMITS, num_blocks=2000)
    trace = replace(requests(np.random.default_rng(9), n), output_tokens=np.full(n, 60))
    result = replay(trace, limits, cost(limits))
    rollouts, gauges = result.tables["rollouts"], result.tables["gauges"].to_pydict()
    assert sum(rollouts["num_preempted"].to_pylist()) == 0
    running = np.array(gauges["running"][:-1]) @ np.diff(gauges["t_s"])
    held = np.sum(rollouts["t_end_s"].to_numpy() - rollouts["t_start_s"].to_numpy())
    assert running == pytest.approx(held, rel=0.03)


def test_formats_of_a_trace_do_not_matter(tmp_path):
    trace = requests(np.random.default_rng(6), 60, arrivals=True)
    table = pa.table(
        {
            "request_id": trace.ids,
            "arrival_s": trace.arrival_s,
            "prompt_tokens": trace.prompt_tokens,
            "output_tokens": trace.output_tokens,
            "group_id": trace.group,
            "priority": trace.priority,
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    arrow_csv.write_csv(table, tmp_path / "t.csv")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    results = [
        replay(read_requests(tmp_path / f"t.{ending}"), LIMITS, cost(LIMITS), replicas=2).tables
        for ending in ("parquet", "csv", "jsonl")
    ]
    for other in results[1:]:
        assert all(results[0][name].equals(other[name]) for name in results[0])


def test_lengths_are_cut_at_max_model_len_and_say_so():
    trace = replace(
        requests(np.random.default_rng(0), 2), prompt_tokens=np.array([100, 100]), output_tokens=np.array([60, 61]),
        group=np.array([-1, -1]),
    )  # fmt: skip
    table = replay(trace, LIMITS, cost(LIMITS)).tables["rollouts"]
    assert table["output_tokens"].to_pylist() == [60, 60]
    assert table["is_truncated"].to_pylist() == [False, True]
    assert table["finish_reason"].to_pylist() == ["stop", "length"]


def test_more_replicas_than_groups_leave_some_idle():
    trace = requests(np.random.default_rng(0), 3, grouped=False)
    result = replay(trace, LIMITS, cost(LIMITS), replicas=5, gpus_per_replica=2)
    ledger = {(row["category"], row["cause"]): row["gpu_s"] for row in result.tables["ledger"].to_pylist()}
    assert ledger["idle", "no request was dealt to the replica"] == 2 * 2 * result.span_s


def test_requests_that_can_never_fit_are_named():
    trace = replace(
        requests(np.random.default_rng(0), 9), prompt_tokens=np.array([1, 159, 160, 200, 1, 170, 180, 190, 1]),
        output_tokens=np.ones(9, int), group=np.full(9, -1),
    )  # fmt: skip
    with pytest.raises(BadInput) as caught:
        check_fit(trace, LIMITS)
    assert [fault.place for fault in caught.value.faults][:2] == ["row 3, id 'r2'", "row 4, id 'r3'"]
    with pytest.raises(BadInput, match="and 2 more requests"):
        check_fit(replace(trace, prompt_tokens=np.array([1, 160, 160, 200, 200, 170, 180, 190, 1])), LIMITS)
    check_fit(trace.select(np.array([0, 1])), LIMITS)


@pytest.mark.parametrize("change", [{}, {"chunked_prefill": False}, {"num_speculative_tokens": 3}])
def test_the_fast_check_of_what_fits_agrees_with_the_plain_one(change):
    from rollsim.simulator.replica import unfit

    limits = replace(LIMITS, num_blocks=30, max_model_len=150, **change)
    rng = np.random.default_rng(8)
    trace = replace(
        requests(rng, 500), prompt_tokens=rng.integers(1, 170, 500), output_tokens=rng.integers(1, 170, 500)
    )
    for i in range(len(trace)):
        plain = unfit(limits, int(trace.prompt_tokens[i]), int(trace.output_tokens[i]))
        with nullcontext() if plain is None else pytest.raises(BadInput, match=re.escape(plain)):
            check_fit(trace.select(np.array([i])), limits)


def test_progress_counts_requests():
    seen: list[int] = []
    replay(requests(np.random.default_rng(0), 20), LIMITS, cost(LIMITS), replicas=4, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 20

"""From records of a world to tables: by hand, and for a small world as it runs."""

import math

import numpy as np
import pyarrow.compute as pc
import pytest

from rollsim.simulator import ledger as ledgers
from rollsim.simulator.config import parse
from rollsim.simulator.kernel import state
from rollsim.simulator.leases import Leases
from rollsim.simulator.segments import segments
from rollsim.simulator.setup import resolve
from rollsim.simulator.trajectories import DISCARDED, ROUND_OVER, STALE, TRAINED, UNKNOWN, Trajectories
from rollsim.simulator.world import World
from rollsim.simulator.world_tables import rollouts, spans, steps, tables

MAX_MODEL_LEN = 100
CONFIG = {
    "model": {"profile": "qwen3-8b-h100-tp1-bf16"},
    "cluster": {"gpus": 4},
    "train": {"steps": 2, "prompts_per_step": 4, "samples_per_prompt": 4},
    "workload": {"trace": "example:grpo"},
    "record": {"segments": True},
}


def records(**columns) -> np.ndarray:
    """Five trajectories: trained, discarded after its end, stopped, cut by the model's length, in flight."""
    known = {
        "group": [0, 0, 1, 1, 2],
        "prompt_tokens": [10] * 5,
        "target_tokens": [20, 20, 20, 200, 20],
        "output_tokens": [20, 20, 5, 90, 0],
        "recomputed_tokens": [0, 10, 0, 5, -1],
        "t_submit_s": [0.0] * 5,
        "t_end_s": [2.0, 3.0, 1.0, 9.0, -1.0],
        "t_final_s": [2.5, 3.5, 1.5, 9.5, -1.0],
        "reward": [1.0, -1.0, 0.0, 1.0, 1.0],
        "version_start": [0, 0, 0, 1, -1],
        "version_trained": [2, -1, -1, 2, -1],
        "step_trained": [1, -1, -1, 1, -1],
        "fate": [TRAINED, DISCARDED, DISCARDED, TRAINED, 0],
        "reason": [-1, STALE, ROUND_OVER, -1, -1],
    }
    trajectories = Trajectories()
    trajectories.add(np.repeat(UNKNOWN, 5))
    for name, values in (known | columns).items():
        trajectories.rows[name] = values
    return trajectories.rows


def test_rollouts_by_hand():
    table = rollouts(records(), MAX_MODEL_LEN)
    seen = {name: table[name].to_pylist() for name in table.column_names}
    assert seen["sample_id"] == ["0", "1", "2", "3", "4"]
    assert seen["status"] == ["finished", "finished", "aborted", "finished", "in_flight"]
    assert seen["finish_reason"] == ["stop", "stop", "abort", "length", None]
    assert seen["is_truncated"] == [False, False, None, True, None]
    assert seen["max_output_tokens"] == [90] * 5
    assert seen["fate"] == ["trained", "discarded", "discarded", "trained", "undecided"]
    assert seen["discard_reason"] == [None, "stale", "round over", None, None]
    assert seen["step_trained"] == [1, None, None, 1, None]
    assert seen["t_end_s"] == [2.0, 3.0, 1.0, 9.0, None]
    assert seen["reward"] == [1.0, -1.0, 0.0, 1.0, None], "a reward that nobody has seen is not known"
    assert seen["t_start_s"] == [None] * 5


def test_staleness_of_each_step():
    table = steps([{"step": 0, "t0_s": 1.0}, {"step": 1, "t0_s": 2.0}], records())
    assert table["staleness_mean"].to_pylist() == [None, 1.5]
    assert table["staleness_max"].to_pylist() == [None, 2]
    assert table["t0_s"].to_pylist() == [1.0, 2.0]


def test_nothing_that_happened_is_empty_tables():
    none = records()[:0]
    assert (len(rollouts(none, MAX_MODEL_LEN)), len(steps([], none)), len(spans([]))) == (0, 0, 0)
    assert ledgers.fate_shares(none) == {("undecided", None): 1.0}
    assert len(ledgers.ledger([], {("undecided", None): 1.0})) == 0


def test_fates_by_tokens_generated_and_recomputed():
    total = 20 + 20 + 10 + 5 + 90 + 5
    assert ledgers.fate_shares(records()) == {
        ("trained", None): (20 + 95) / total,
        ("discarded", "stale"): 30 / total,
        ("discarded", "round over"): 5 / total,
    }


def test_the_fate_is_a_second_breakdown_of_the_same_seconds():
    leases = Leases(3)
    one, two = leases.take("rollout", 0, 2, 0.0), leases.take("train", 2, 1, 0.0)
    one.charge("decode", None, 6.0)
    one.charge("tail_bubble", "others", 4.0)
    two.charge("starved", None, 10.0)
    for lease in (one, two):
        leases.end(lease, 10.0)
    table = ledgers.ledger(leases.all, {("trained", None): 0.75, ("discarded", "stale"): 0.25})
    lines = {(r["pool"], r["category"], r["fate"], r["discard_reason"]): r["gpu_s"] for r in table.to_pylist()}
    assert lines == {
        ("rollout", "decode", "trained", None): 9.0,
        ("rollout", "decode", "discarded", "stale"): 3.0,
        ("rollout", "tail_bubble", None, None): 8.0,
        ("train", "starved", None, None): 10.0,
    }


def test_segments_by_hand():
    """One stays from 1 to 5 s, is preempted and comes back from 7 to 9 s; tokens are out at 2 s and again at 7.5 s."""
    rows = records(t_submit_s=[0.5] * 5, t_first_token_s=[2.0, -1, -1, -1, -1])[:1]
    log = np.zeros(2, state.SPAN)
    log["request"] = 3
    log["version"] = [4, 5]
    log["t0_s"], log["t1_s"] = [1.0, 7.0], [5.0, 9.0]
    log["token_s"] = [2.0, 7.5]
    log["cached_tokens"] = [4, 0]
    log["out_before"], log["out_after"] = [0, 12], [12, 20]
    table = segments(rows, [log[::-1]], [np.array([9, 9, 9, 0])])
    seen = [tuple(row[name] for name in ("kind", "tokens", "version", "t0_s", "t1_s")) for row in table.to_pylist()]
    assert seen == [
        ("queue", 0, None, 0.5, 1.0),
        ("prefill", 6, 4, 1.0, 2.0),
        ("decode", 12, 4, 2.0, 5.0),
        ("queue", 0, None, 5.0, 7.0),
        ("reprefill", 10 + 12, 5, 7.0, 7.5),
        ("decode", 8, 5, 7.5, 9.0),
    ]
    assert table["sample_id"].to_pylist() == ["0"] * 6


@pytest.fixture(scope="module")
def world() -> World:
    lived = World(resolve(parse(CONFIG)))
    lived.run()
    return lived


def test_a_small_world(world):
    made = tables(world)
    assert list(made) == ["rollouts", "segments", "steps", "spans", "gauges", "ledger"]
    assert len(made["rollouts"]) == world.trajectories.n == 32
    assert math.fsum(made["ledger"]["gpu_s"].to_pylist()) == pytest.approx(4 * world.end_s, rel=1e-9)
    settled = made["ledger"].filter(pc.is_valid(made["ledger"]["fate"]))
    generation = sum(
        seconds * lease.count
        for lease in world.leases.all
        for (category, _), seconds in lease.charges.items()
        if category in ledgers.GENERATION
    )
    assert pc.sum(settled["gpu_s"]).as_py() == pytest.approx(generation, rel=1e-12)
    assert made["gauges"]["t_s"].to_numpy().max() <= world.end_s
    decoded = made["segments"].filter(pc.equal(made["segments"]["kind"].cast("string"), "decode"))
    assert pc.sum(decoded["tokens"]).as_py() == pc.sum(made["rollouts"]["output_tokens"]).as_py()
    assert made["segments"]["t1_s"].to_numpy().max() <= world.end_s


def test_the_same_world_gives_the_same_tables(world):
    again = World(resolve(parse(CONFIG)))
    again.run()
    for name, table in tables(again).items():
        assert table.equals(tables(world)[name]), name


def test_segments_only_where_they_are_asked_for():
    silent = World(resolve(parse(CONFIG | {"record": {"segments": False}})))
    silent.run()
    assert "segments" not in tables(silent)

"""INV-8, INV-10 and INV-11 in random worlds, and with policies of every point that answer what they must not."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollsim.policies.base import NEVER, Prompt, Selected, Subscription, SyncPlan
from rollsim.simulator.invariants import same
from rollsim.simulator.rng import Streams
from rollsim.simulator.workload_source import open_workload
from rollsim.simulator.world_failed import WorldFailed
from rollsim.simulator.world_tables import tables
from tests.simulator.world.small import SPLIT, run, setup


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_inv_8_eta_0_hard_is_synchronous_in_random_worlds(data):
    draw = data.draw
    prompts, samples = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    row = st.lists(st.integers(1, 150), min_size=samples, max_size=samples)
    lengths = draw(st.lists(row, min_size=1, max_size=8))
    shared = draw(st.booleans())
    common = {"routing": draw(st.sampled_from(["even_split", "least_load"]))}
    if not shared:
        common["allocation"] = SPLIT
        common["weight_sync"] = draw(st.sampled_from(["drain", {"use": "in_flight", "keep_kv": True}, "in_flight"]))
        if draw(st.booleans()):
            common["readiness"] = {"use": "streaming", "micro_groups": draw(st.integers(1, 3))}
    sections = {
        "gpus": 2 if shared else 4,
        "prompts": prompts,
        "samples": samples,
        "steps": draw(st.integers(1, 4)),
        "reward_s": draw(st.sampled_from([0.0, 1.5, {"median_s": 1.0, "p99_s": 9.0}])),
        "hand": draw(st.booleans()),
        "train": {"mini_batches": draw(st.integers(1, prompts * samples)), "validate_every": draw(st.integers(0, 2))},
        "limits": {
            "max_model_len": 176,
            "max_num_seqs": draw(st.sampled_from([2, 16])),
            "num_blocks": draw(st.sampled_from([11, 2000])),
            "async_scheduling": draw(st.booleans()),
        },
    }
    bounded = {"admission": {"use": "staleness_quota", "eta": 0}}
    # Streaming takes the first that are ready: in order they would be others.
    if "readiness" not in common:
        bounded["selection"] = ["in_order", {"use": "drop_stale", "eta": 0}]
    worlds = [run(setup(common | more, lengths, **sections)) for more in ({}, bounded)]
    finding = same("INV-8", "eta 0", *map(tables, worlds))
    assert finding.ok, finding


MODES = {
    "synchronous": {},
    "one step off": {"allocation": SPLIT, "admission": {"use": "fixed_batch", "ahead": 1}},
    "asynchronous": {
        "allocation": SPLIT,
        "admission": [{"use": "staleness_quota", "eta": 2}, {"use": "concurrency", "trajectories": 9}],
        "weight_sync": "in_flight",
        "routing": "least_load",
    },
    "carried": {
        "admission": {"use": "fixed_batch", "over_issue": 2},
        "round_end": {"use": "first_k", "unfinished": "carry"},
        "ordering": "fresh_first",
    },
    "dynamic sampling": {"selection": "drop_zero_variance", "prompts": {"use": "in_order", "prompts": 50}},
}


@pytest.mark.parametrize("mode", sorted(MODES.keys() - {"synchronous"}))
@pytest.mark.parametrize("source", [("example:grpo", None), (None, "qwen2.5-math-math100")], ids=["trace", "law"])
def test_inv_11_a_policy_changes_no_draw_of_a_trajectory(mode, source):
    drawn = []
    for name in ("synchronous", mode):
        workload = open_workload(*source, Streams(3), visits="redraw", cap_tokens=None, file="test")
        gpus = 4 if "allocation" in MODES[name] else 2
        made = setup(MODES[name], [(1,)], prompts=4, samples=4, steps=4, gpus=gpus, limits={"max_model_len": 16384})
        rows = run(replace(made, workload=workload)).trajectories.rows
        keys = zip(rows["prompt"].tolist(), rows["visit"].tolist(), rows["sample"].tolist(), strict=True)
        fields = ("prompt_tokens", "target_tokens", "truncated", "extra", "reward")
        values = zip(*(np.nan_to_num(rows[field], nan=-1.0).tolist() for field in fields), strict=True)
        drawn.append(dict(zip(keys, values, strict=True)))
    common = drawn[0].keys() & drawn[1].keys()
    assert len(common) >= 4 * 4 * 4
    assert len({drawn[0][key] for key in common}) > 10
    assert {key: drawn[0][key] for key in common} == {key: drawn[1][key] for key in common}


@dataclass(frozen=True)
class Wrong:
    """Answers by the way in which it is wrong."""

    way: str
    subscription: Subscription = NEVER

    def choose(self, view, groups):
        """One prompt too few."""
        return [Prompt(i, 0) for i in range(groups - 1)]

    def route(self, view, count):
        """Too few replicas, none, or a negative one."""
        return {"few": [0] * (count - 1), "one": [0], "none": [None] * count, "negative": [-1] * count}[self.way]

    def keys(self, view, waiting):
        """Too few places, or too many."""
        return np.zeros(len(waiting.group) + (1 if self.way == "many" else -1))

    def close(self, view):
        """What is no way to close a round."""
        return "explode" if view.groups_buffered and view.trajectories_in_flight else None

    def groups(self, view):
        """None at all."""
        return 0

    def select(self, view, units):
        """One twice, or the same chosen and dropped."""
        return Selected([units[0]] * 2, []) if self.way == "twice" else Selected(list(units), list(units))

    def plan(self, view):
        """What is no way for weights."""
        return SyncPlan("teleport", keep_kv=False)  # pyright: ignore[reportArgumentType]

    def may_start(self, view):
        """Half a group."""
        return 1.5


@pytest.mark.parametrize(
    ("point", "way"),
    [
        ("prompts", "few"),
        ("admission", "half"),
        ("routing", "few"),
        ("routing", "one"),
        ("routing", "none"),
        ("routing", "negative"),
        ("ordering", "few"),
        ("ordering", "many"),
        ("round_end", "unknown"),
        ("readiness", "none"),
        ("selection", "twice"),
        ("selection", "both"),
        ("weight_sync", "unknown"),
    ],
)
def test_inv_10_a_world_refuses_what_no_policy_may_answer(point, way):
    made = setup({"allocation": SPLIT}, [(3, 5), (4, 10)], steps=1)
    policy = Wrong(way, Subscription(groups=1) if point == "round_end" else NEVER)
    made = replace(made, policies=replace(made.policies, **{point: policy}))
    with pytest.raises(WorldFailed, match="INV-10"):
        run(made)

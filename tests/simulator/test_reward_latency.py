"""Latency of rewards: its law, its keys, and that every policy meets the same one."""

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from rollsim.simulator.config import parse
from rollsim.simulator.reward_latency import LognormalSeconds, RewardLatency, RewardSeconds
from rollsim.simulator.rng import Streams
from rollsim.simulator.setup import resolve
from rollsim.simulator.world import World
from rollsim.traces.errors import BadInput

LAW = LognormalSeconds(median_s=2.0, p99_s=30.0)
PROMPT, SAMPLE = np.arange(20_000)[:, None], np.arange(8)


def drawn(law=LAW, seed=0, visit=0):
    return RewardLatency(law, Streams(seed)).draw(PROMPT, visit, SAMPLE)


def test_median_and_p99_are_those_given():
    """Of 160,000 draws: the standard error of the median is 0.36 %, of the 99th percentile 1.2 %."""
    seconds = drawn()
    assert np.median(seconds) == pytest.approx(2.0, rel=0.015)
    assert np.quantile(seconds, 0.99) == pytest.approx(30.0, rel=0.05)
    assert np.log(seconds).std() == pytest.approx(LAW.sigma, rel=0.01)


def test_a_timeout_ends_what_takes_longer_and_nothing_else():
    free, cut = drawn(), drawn(LAW.model_copy(update={"timeout_s": 10.0}))
    np.testing.assert_array_equal(cut, np.minimum(free, 10.0))
    assert 0.05 < (cut == 10.0).mean() < 0.15


def test_without_spread_it_is_the_median():
    assert (drawn(LognormalSeconds(median_s=2.5, p99_s=2.5)) == 2.5).all()


def test_a_constant_is_drawn_for_nobody():
    assert drawn(1.5) == 1.5


def test_it_is_a_function_of_seed_prompt_visit_and_sample():
    latency = RewardLatency(LAW, Streams(3))
    whole = latency.draw(PROMPT, 0, SAMPLE)
    assert latency.draw(17, 0, 5) == whole[17, 5]
    assert latency.draw(np.array([9, 4]), 0, np.array([2, 2])).tolist() == whole[[9, 4], 2].tolist()
    for other in (drawn(seed=4), drawn(seed=3, visit=1), whole[::-1], whole[:, ::-1]):
        assert (other == whole).mean() < 0.01


def world(policies, reward_s, **train):
    document = {
        "model": {"profile": "qwen3-8b-h100-tp1-bf16"},
        "cluster": {"gpus": 8},
        "train": {"steps": 3, "prompts_per_step": 8, "samples_per_prompt": 4} | train,
        "workload": {"law": "rollpacker-math-14b", "reward_s": reward_s},
        "policies": policies,
    }
    made = World(resolve(parse(document), seed=9))
    made.run()
    return made


def latencies(made):
    rows = made.trajectories.rows
    rows = rows[rows["t_final_s"] >= 0]
    keys = zip(rows["prompt"].tolist(), rows["visit"].tolist(), rows["sample"].tolist(), strict=True)
    return dict(zip(keys, (rows["t_final_s"] - rows["t_end_s"]).tolist(), strict=True))


SPREAD = {"median_s": 2.0, "p99_s": 30.0}
POLICIES = [
    {},
    {
        "allocation": {"use": "static_split", "rollout_gpus": 4},
        "admission": {"use": "staleness_quota", "eta": 2},
        "weight_sync": {"use": "in_flight", "keep_kv": False},
    },
    {"admission": {"use": "fixed_batch", "over_issue": 1}, "round_end": {"use": "first_k", "unfinished": "carry"}},
]


def test_every_policy_meets_the_same_latency():
    synchronous, *others = (latencies(world(policies, SPREAD)) for policies in POLICIES)
    assert len(set(synchronous.values())) == 3 * 8 * 4
    expected = RewardLatency(LognormalSeconds(**SPREAD), Streams(9))
    for key, seconds in synchronous.items():
        assert seconds == pytest.approx(float(expected.draw(*key)), abs=1e-9)
    for other in others:
        shared = synchronous.keys() & other.keys()
        assert len(shared) > 40
        assert [other[key] for key in shared] == pytest.approx([synchronous[key] for key in shared], abs=1e-9)


def test_a_step_waits_for_the_slowest_reward():
    made = world({}, SPREAD, steps=1)
    rows = made.trajectories.rows
    quick = world({}, 0.0, steps=1)
    later_s = rows["t_final_s"].max() - quick.trajectories.rows["t_final_s"].max()
    assert made.end_s - quick.end_s == pytest.approx(later_s)
    assert later_s > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("fast", ["workload.reward_s: Input should be a valid number", "'fast'"]),
        (-1, ["workload.reward_s: ", "given -1"]),
        (float("nan"), ["workload.reward_s: "]),
        ([1], ["workload.reward_s: "]),
        ({"median_s": 2, "p99": 3}, ["workload.reward_s.p99_s: missing", "did you mean 'p99_s'"]),
        ({"median_s": 2, "p99_s": 1}, ["workload.reward_s: p99_s must be at least median_s"]),
        ({"median_s": 0, "p99_s": float("inf")}, ["workload.reward_s.median_s", "workload.reward_s.p99_s"]),
        ({"median_s": 1, "p99_s": 2, "timeout_s": 0}, ["workload.reward_s.timeout_s"]),
    ],
)
def test_what_is_no_latency(given, said):
    with pytest.raises(BadInput) as error:
        world({}, given)
    for word in said:
        assert word in str(error.value)


def test_a_dump_is_the_same_latency():
    adapter = TypeAdapter(RewardSeconds)
    for given in (0.5, LAW):
        assert adapter.validate_python(adapter.dump_python(given, mode="json")) == given
    with pytest.raises(ValidationError):
        adapter.validate_python(None)

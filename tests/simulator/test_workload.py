"""Draws of workloads: keys, groups, tables, speed, and that no policy moves a draw (INV-11)."""

import time

import numpy as np
import pytest

from rollsim.simulator.config import parse
from rollsim.simulator.law_store import load_law
from rollsim.simulator.length_law import Drift
from rollsim.simulator.lengths import Lengths
from rollsim.simulator.rng import Streams
from rollsim.simulator.setup import resolve
from rollsim.simulator.workload import LawWorkload, groups
from rollsim.simulator.workload_source import open_workload
from rollsim.simulator.world import World
from rollsim.traces.errors import BadInput

LAW = "r1-distill-1.5b-aime"


def test_another_visit_sample_or_attempt_is_another_draw_of_the_same_prompt():
    workload = LawWorkload(load_law(LAW), Streams(0))
    first = groups(workload, np.arange(50), 4)
    again = groups(workload, np.arange(50), 4, visit=1)
    assert (first.prompt_tokens == again.prompt_tokens).all()
    assert (first.pass_rate == again.pass_rate).all()
    assert (first.output_tokens == again.output_tokens).mean() < 0.05
    assert workload.draw(3, 2, attempt=1).output_tokens != first.output_tokens[3, 2]
    reused = LawWorkload(load_law(LAW), Streams(0), visits="reuse")
    assert (groups(reused, np.arange(50), 4, visit=7).output_tokens == first.output_tokens).all()


def test_groups_are_one_draw_for_each_prompt_visit_and_version():
    law = load_law(LAW).model_copy(update={"drift": (Drift(version=0, factor=1.0), Drift(version=1, factor=1.5))})
    workload = LawWorkload(law, Streams(0))
    whole = groups(workload, [7, 8], 3, visit=[0, 2], version=[0, 1])
    one = workload.draw(8, 1, visit=2, version=1)
    assert whole.output_tokens.shape == (2, 3)
    assert whole.output_tokens[1, 1] == one.output_tokens
    assert not whole.extra.any()


def test_unknown_pass_rates_are_no_rewards():
    drawn = groups(LawWorkload(load_law("sky-t1-32b-aime24"), Streams(0)), np.arange(5), 2)
    assert np.isnan(drawn.reward).all()
    assert np.isnan(drawn.pass_rate).all()


WORLD = {
    "model": {"profile": "qwen3-8b-h100-tp1-bf16"},
    "cluster": {"gpus": 8},
    "train": {"steps": 3, "prompts_per_step": 8, "samples_per_prompt": 4},
    "workload": {"law": LAW},
}
SPLIT = {"use": "static_split", "rollout_gpus": 4}
POLICIES = {
    "synchronous": {"allocation": "colocate", "admission": "fixed_batch", "weight_sync": "drain"},
    "asynchronous": {
        "allocation": SPLIT,
        "admission": {"use": "staleness_quota", "eta": 2},
        "routing": "least_load",
        "ordering": "fresh_first",
        "weight_sync": {"use": "in_flight", "keep_kv": False},
    },
    "refilled": {"allocation": "colocate", "admission": "fixed_batch", "selection": "drop_zero_variance"},
}


def by_key(policies):
    """(prompt tokens, target, reward, truncated) of every trajectory of a world by prompt, visit and sample."""
    world = World(resolve(parse(WORLD | {"policies": policies}), seed=9))
    world.run()
    rows = world.trajectories.rows
    keys = zip(*(rows[name].tolist() for name in ("prompt", "visit", "sample")), strict=True)
    drawn = (rows[name].tolist() for name in ("prompt_tokens", "target_tokens", "reward", "truncated"))
    return dict(zip(keys, zip(*drawn, strict=True), strict=True))


def test_inv_11_no_policy_moves_a_draw():
    worlds = {name: by_key(policies) for name, policies in POLICIES.items()}
    usual = worlds.pop("synchronous")
    assert len(usual) == 3 * 8 * 4
    for name, other in worlds.items():
        assert len(other) > len(usual) / 2
        shared = usual.keys() & other.keys()
        assert len(shared) > len(usual) / 2, name
        assert {key: usual[key] for key in shared} == {key: other[key] for key in shared}, name
    assert len(worlds["refilled"]) > len(usual), "refilling asked for more prompts"


@pytest.mark.parametrize("visits", ["redraw", "reuse"])
@pytest.mark.parametrize(("trace", "law"), [(None, LAW), (None, "rollpacker-math-14b"), ("example:grpo", None)])
def test_a_step_of_8192_costs_little_more_than_its_normals(trace, law, visits):
    """In CPU time, beside one draw of as many normals (0.6 ms alone on a core): 8 times is about 5 ms."""
    streams = Streams(0)
    workload = open_workload(trace, law, streams, visits=visits)
    prompt, sample = np.repeat(np.arange(1024), 8), np.tile(np.arange(8), 1024)
    took = {"draw": [], "normals": []}
    for i in range(12):
        begin = time.process_time()
        workload.draw(prompt, sample, visit=i)
        middle = time.process_time()
        streams.normal("speed", prompt, i, sample)
        took["draw"].append(middle - begin)
        took["normals"].append(time.process_time() - middle)
    assert min(took["draw"]) < 8 * min(took["normals"])


@pytest.mark.parametrize(
    ("given", "places"),
    [
        ({}, ["workload:"]),
        ({"trace": "example:grpo", "law": LAW}, ["workload:"]),
        ({"trace": "example:grpo", "cap_tokens": 9}, ["workload.cap_tokens:"]),
        (
            {
                "trace": "example:grpo",
                "cap_tokens": 9,
                "drift": [Drift(version=5, factor=1.0), Drift(version=2, factor=2.0)],
            },
            ["workload.cap_tokens:", "workload.drift:", "increase strictly"],
        ),
    ],
)
def test_what_does_not_go_together(given, places):
    settings = {"trace": None, "law": None} | given
    with pytest.raises(BadInput) as error:
        open_workload(settings.pop("trace"), settings.pop("law"), Streams(0), **settings)
    for place in places:
        assert place in str(error.value)


def test_drift_and_cap_of_the_config_replace_those_of_the_law():
    workload = open_workload(None, LAW, Streams(0), cap_tokens=12_000, drift=[Drift(version=0, factor=0.5)])
    assert workload.longest_output_tokens == 12_000
    assert workload.lengths.quantile(0.5) == pytest.approx(Lengths(load_law(LAW)).quantile(0.5) / 2)
    assert [(claim.part, claim.grade) for claim in workload.claims][-1] == ("drift", "assumed")
    assert len(workload.claims) == len(load_law(LAW).evidence.claims) + 1


@pytest.mark.parametrize(("law", "said"), [("sky-t1-32b-aime24", True), (LAW, False)])
def test_a_selection_by_rewards_that_nobody_knows_is_told(law, said):
    made = resolve(parse(WORLD | {"workload": {"law": law}, "policies": POLICIES["refilled"]}))
    assert any("drop_zero_variance drops no group" in note for note in made.notes) == said
    made = resolve(parse(WORLD | {"workload": {"law": law}, "policies": POLICIES["synchronous"]}))
    assert not any("drop_zero_variance" in note for note in made.notes)

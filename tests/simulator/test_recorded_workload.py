"""Replay of recorded groups."""

import numpy as np
import pyarrow.compute as pc
import pytest

from rollsim.simulator import simulate
from rollsim.simulator.recorded_workload import RecordedWorkload
from rollsim.simulator.rng import Streams
from rollsim.traces.errors import BadInput
from rollsim.traces.requests import read_requests
from rollsim.traces.run import Run

ROWS = [(100, 10, "b"), (50, 7, "a"), (100, 20, "b"), (50, 9, "a"), (50, 8, "a"), (30, 5, "")]


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("prompt_tokens,output_tokens,group\n" + "".join(f"{p},{o},{g}\n" for p, o, g in ROWS))
    return read_requests(path)


def groups(workload, prompts, samples, **keys):
    return workload.draw(np.array(prompts)[:, None], np.arange(samples), **keys)


def test_the_first_pass_is_as_recorded(trace):
    workload = RecordedWorkload(trace, Streams(0), order="recorded")
    assert len(workload) == 3
    drawn = groups(workload, [0, 1], 2)
    assert drawn.output_tokens.tolist() == [[10, 20], [7, 9]]
    assert drawn.prompt_tokens.tolist() == [[100, 100], [50, 50]]
    assert not drawn.extra.any()
    assert np.isnan(drawn.reward).all()
    assert groups(workload, [2], 1).output_tokens.tolist() == [[5]], "a request without a group is one of its own"
    assert (workload.longest_prompt_tokens, workload.longest_output_tokens) == (100, 20)


def test_extras_are_flagged_and_come_from_within_the_group(trace):
    drawn = groups(RecordedWorkload(trace, Streams(0), order="recorded"), [0, 1], 400)
    assert drawn.extra.sum(axis=1).tolist() == [398, 397]
    assert drawn.extra.mean() == pytest.approx((398 + 397) / 800)
    # Log lengths of b: ln 10 and ln 20; blurred around each of the two.
    logs = np.log(drawn.output_tokens[0, 2:])
    assert np.log([10, 20]).mean() == pytest.approx(logs.mean(), abs=0.1)
    assert drawn.output_tokens[0].max() <= 20


def test_the_blur_is_silvermans(trace):
    logs = [np.log([10, 20]), np.log([7, 9, 8]), np.log([5])]
    squares = sum(((x - x.mean()) ** 2).sum() for x in logs)
    expected = 0.9 * np.sqrt(squares / (6 - 3)) * 2 ** (-1 / 5)
    # One number is needed from inside: no drawn length shows the width alone.
    assert RecordedWorkload(trace, Streams(0), order="recorded")._blur[0] == pytest.approx(expected)


def test_laps_and_visits_redraw_or_reuse(trace):
    redrawn, reused = (
        RecordedWorkload(trace, Streams(3), order="recorded"),
        RecordedWorkload(trace, Streams(3), visits="reuse", order="recorded"),
    )
    laps = np.arange(40) * 3
    assert set(groups(redrawn, laps, 2).output_tokens.ravel().tolist()) == {10, 20}
    assert len({tuple(row) for row in groups(redrawn, laps, 2).output_tokens.tolist()}) == 4
    assert {tuple(row) for row in groups(reused, laps, 2).output_tokens.tolist()} == {(10, 20)}
    visits = {tuple(groups(redrawn, [0], 2, visit=visit).output_tokens[0].tolist()) for visit in range(1, 40)}
    assert len(visits) == 4
    assert groups(reused, [1], 3, visit=5).output_tokens.tolist() == [[7, 9, 8]]


def test_inv_11_a_response_depends_on_its_keys_alone(trace):
    workload = RecordedWorkload(trace, Streams(1), order="recorded")
    whole = groups(workload, range(30), 5, visit=2)
    for prompt in (0, 7, 29):
        for sample in (0, 4):
            one = workload.draw(prompt, sample, visit=2)
            assert one.output_tokens == whole.output_tokens[prompt, sample]


OUTCOMES = "prompt_tokens,output_tokens,group,reward,is_truncated\n9,10,a,1,false\n9,99,a,0,true\n9,40,b,,false\n"


@pytest.fixture
def outcomes(tmp_path):
    path = tmp_path / "o.csv"
    path.write_text(OUTCOMES)
    return read_requests(path)


def test_rewards_and_cuts_come_with_their_response(outcomes):
    drawn = groups(RecordedWorkload(outcomes, Streams(0), order="recorded"), [0, 1], 1)
    assert drawn.reward[0] == 1
    assert np.isnan(drawn.reward[1])
    many = groups(RecordedWorkload(outcomes, Streams(0), order="recorded"), [0], 600)
    assert many.truncated[0, :2].tolist() == [False, True]
    assert (many.reward[0] == ~many.truncated[0]).all(), "which of both a response is, its reward and length say alike"
    assert 0.4 < many.truncated.mean() < 0.6


def test_a_length_that_is_the_limit_is_not_blurred(outcomes):
    many = groups(RecordedWorkload(outcomes, Streams(0), order="recorded"), [0], 600)
    cut = many.truncated[0]
    assert set(many.output_tokens[0, cut].tolist()) == {99}
    assert len(set(many.output_tokens[0, ~cut].tolist())) > 10
    assert many.output_tokens.max() == 99


def test_lone_requests_repeat_themselves_and_say_so(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("prompt_tokens,output_tokens\n5,10\n6,20\n")
    workload = RecordedWorkload(read_requests(path), Streams(0), order="recorded")
    drawn = groups(workload, [0, 1], 4)
    assert drawn.output_tokens.tolist() == [[10] * 4, [20] * 4]
    assert drawn.extra.mean() == 0.75
    assert any("no groups" in note for note in workload.notes)


def write(path, rows, columns="prompt_tokens,output_tokens,group,status,is_extra"):
    path.write_text("\n".join([columns, *rows]) + "\n")
    return read_requests(path)


def test_what_had_not_ended_or_is_an_extra_is_no_recorded_length(tmp_path):
    rows = ["9,10,a,finished,false", "9,3,a,in_flight,false", "9,4,b,aborted,", "9,77,a,finished,true", "9,5,c,done,0"]
    workload = RecordedWorkload(write(tmp_path / "t.csv", rows), Streams(0), order="recorded")
    assert len(workload) == 2
    drawn = groups(workload, [0, 1], 1)
    assert drawn.output_tokens.ravel().tolist() == [10, 5]
    assert workload.longest_output_tokens == 10
    assert any(note.startswith("2 of 5 responses") and "not ended" in note for note in workload.notes)
    assert any(note.startswith("1 of 5 responses") and "beyond" in note for note in workload.notes)


def test_a_trace_without_a_recorded_length_is_refused(tmp_path):
    trace = write(tmp_path / "t.csv", ["9,10,a,failed,false", "9,3,a,Pending ,false", "9,3,a,finished,true"])
    with pytest.raises(BadInput, match="none of its 3 responses"):
        RecordedWorkload(trace, Streams(0), order="recorded")


def test_whole_traces_say_nothing_of_what_is_left_out(tmp_path):
    workload = RecordedWorkload(write(tmp_path / "t.csv", ["9,10,a,finished,false"]), Streams(0), order="recorded")
    assert not any("left out" in note for note in workload.notes)


def test_the_rollouts_of_a_run_are_replayed(tmp_path):
    """First an asynchronous run, in which some trajectories are under way at the end; then one of what it recorded."""
    small = ("train.steps=3", "train.prompts_per_step=8", "train.samples_per_prompt=4")
    law = ("workload.trace=null", "workload.law=r1-distill-1.5b-aime")
    (setup,) = simulate.replications(simulate.load("example:async", (*small, *law)), "c", 3, 1)
    simulate.write(simulate.simulate(setup), tmp_path / "a")
    wanted = ("group_id", "prompt_tokens", "output_tokens", "is_truncated", "reward")
    rollouts = Run.open(tmp_path / "a").table("rollouts")
    recorded = rollouts.filter(pc.equal(rollouts["status"], "finished")).select(wanted)
    assert 0 < recorded.num_rows < rollouts.num_rows
    workload = RecordedWorkload(read_requests(tmp_path / "a"), Streams(0), order="recorded")
    assert len(workload) == len(recorded["group_id"].unique())
    lost = rollouts.num_rows - recorded.num_rows
    assert any(note.startswith(f"{lost} of {rollouts.num_rows} responses") for note in workload.notes)
    for number, group in enumerate(recorded["group_id"].unique().to_pylist()):
        mine = recorded.filter(pc.equal(recorded["group_id"], group))
        drawn = workload.draw(number, np.arange(mine.num_rows))
        for name, field in zip(wanted[1:], ("prompt_tokens", "output_tokens", "truncated", "reward"), strict=True):
            values = np.broadcast_to(getattr(drawn, field), mine.num_rows)
            np.testing.assert_array_equal(values, mine[name].to_numpy(), err_msg=name)
        assert not drawn.extra.any()
        assert workload.draw(number, mine.num_rows).extra
    again = simulate.load("example:sync", (*small, f"workload.trace={tmp_path / 'a'}"))
    done = simulate.simulate(simulate.replications(again, "c", 0, 1)[0])
    assert not done.broken
    assert done.document["extra_share"] > 0
    rewards = done.tables["rollouts"].filter(pc.invert(done.tables["rollouts"]["is_extra"]))["reward"]
    assert {0.0, 1.0} <= set(rewards.to_pylist()) <= {0.0, 1.0, None}
    unknown = recorded["reward"].null_count
    assert any(note.startswith(f"the rewards of {unknown} of") for note in workload.notes) == (unknown > 0)


def test_seeds_draw_groups_with_replacement(trace):
    """Each prompt is a recorded group as it was, each group as likely; seeds differ."""
    drawn = {}
    for seed in (0, 1):
        drawn[seed] = groups(RecordedWorkload(trace, Streams(seed)), np.arange(600), 1)
        kinds, counts = np.unique(
            np.hstack([drawn[seed].prompt_tokens, drawn[seed].output_tokens]), axis=0, return_counts=True
        )
        assert kinds.tolist() == [[30, 5], [50, 7], [100, 10]]
        # 600 draws of chance 1/3 have a standard deviation of 11.5.
        assert abs(counts - 200).max() < 5 * 11.5
    assert (drawn[0].output_tokens != drawn[1].output_tokens).any()

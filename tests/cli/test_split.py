"""`rollsim split` as a user sees it."""

import json

import pytest

from rollsim.cli.app import main

SMALL = ("train.steps=2", "train.prompts_per_step=16", "train.samples_per_prompt=4", "cluster.gpus=6")


@pytest.fixture
def rollsim(capsys):
    """Run the command line in this process: (exit code, stdout, stderr)."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([*map(str, words)])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


def test_it_finds_the_best_and_says_why_not(rollsim):
    code, out, _ = rollsim("split", "example:one-step-off", *SMALL, "--json")
    document = json.loads(out)
    assert code == 0
    ran = {row["split"]: row for row in document["rows"] if row["reason"] is None}
    assert set(ran) == {"1 : 5", "2 : 4", "3 : 3"}
    assert document["best"] == min(ran, key=lambda name: ran[name]["step_s"]["mean"])
    refused = {row["split"]: row["reason"] for row in document["rows"] if row["reason"]}
    # Two H100 hold 68.7 GiB each of weights, gradients and optimizer, but not the activations of 16k tokens as well.
    assert "GiB" in refused["4 : 2"]
    assert "GiB" in refused["5 : 1"]
    assert "shared" in refused["6 shared"]
    for row in ran.values():
        assert all(0 <= row[key]["mean"] <= 1 for key in ("trainer/idle_ratio", "rollouter/idle_ratio"))
        assert row["gpu_hours_per_step"]["mean"] == pytest.approx(row["step_s"]["mean"] * 6 / 3600)
        assert row["behind_best_s"]["mean"] >= 0
    idle = [ran[name]["trainer/idle_ratio"]["mean"] for name in ("1 : 5", "2 : 4", "3 : 3")]
    assert idle == sorted(idle, reverse=True), "more rollout GPUs starve the trainer less"


def test_the_text_fits_80_columns_and_marks_the_best(rollsim):
    code, out, _ = rollsim("split", "example:sync", *SMALL, "cluster.usd_per_gpu_hour=2", "--replications", 2)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for word in (
        "6 shared *",
        "USD/step",
        "rollouter",
        "trainer/idle_ratio",
        "± ",
        "* fastest: 6 shared",
        "cannot run: 4",
    ):
        assert word in out, word


def test_replications_give_every_number_an_interval(rollsim):
    words = ("split", "example:one-step-off", *SMALL, "--json", "cluster.usd_per_gpu_hour=3")
    document = json.loads(rollsim(*words, "--replications", 2, "--seed", 7)[1])
    assert document["seeds"] == [7, 8]
    for row in document["rows"]:
        if row["reason"] is None:
            for name in ("step_s", "trainer/idle_ratio", "rollouter/idle_ratio", "staleness_mean", "usd_per_step"):
                number = row[name]
                assert number["low"] <= number["mean"] <= number["high"], name
                assert number["n"] == 2
            assert row["usd_per_step"]["high"] == pytest.approx(row["step_s"]["high"] * 6 * 3 / 3600)


def test_one_step_is_told_to_be_the_first(rollsim):
    code, out, _ = rollsim("split", "example:one-step-off", *SMALL, "train.steps=1")
    assert code == 0
    assert "first step alone" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("example:snyc",), ["did you mean 'sync'"]),
        (("example:sync", "model.profile=x", "train.steps=0"), ["train.steps"]),
        (("example:sync", "model.profile=x"), ["unknown profile"]),
        (("example:sync", "workload.trace=nope.csv", "cluster.gpus=4"), ["nope.csv"]),
        (("example:sync", "cluster.gpus=1"), ["GiB"]),
    ],
)
def test_bad_input(rollsim, words, said):
    code, out, err = rollsim("split", *words)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    for word in said:
        assert word in err, err


def test_a_world_that_fails_under_every_split_exits_with_1(rollsim):
    """Groups of one have no spread of rewards, so that selection drops every one."""
    words = ("train.steps=1", "train.prompts_per_step=4", "train.samples_per_prompt=1", "cluster.gpus=3")
    code, out, err = rollsim("split", "example:dynamic-sampling", *words)
    assert (code, out) == (1, "")
    assert "no batch in sight" in err

"""`rollsim show` as a user sees it."""

import json

import pytest

from rollsim.cli.app import main
from rollsim.simulator.run_document import document
from rollsim.traces.writer import write_run
from tests.simulator.test_run_report import BASIS
from tests.traces import loops


@pytest.fixture
def rollsim(capsys):
    """Run the command line in this process: (exit code, stdout, stderr)."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([*map(str, words)])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


def test_a_run_with_steps(rollsim, tmp_path):
    write_run(tmp_path / "run", loops.loop(), {}, document(loops.loop(), BASIS))
    code, out, err = rollsim("show", tmp_path / "run")
    assert (code, err) == (0, "")
    for word in ("STEP TIME", "WALL-CLOCK", "EXTRAPOLATED", "BUBBLE", "STALENESS", "SLOWEST", "WHAT THIS RESTS ON"):
        assert word in out, word
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = rollsim("show", tmp_path / "run", "--json")
    assert json.loads(out)["steps"]["step_s"]["mean"] == 20.0


def test_it_is_computed_from_the_tables(rollsim, tmp_path):
    """A summary that lies about the numbers is not believed."""
    lying = document(loops.loop(), BASIS) | {"staleness": None}
    write_run(tmp_path / "run", loops.loop(), {}, lying)
    assert "STALENESS" in rollsim("show", tmp_path / "run")[1]


def test_a_replay_prints_what_it_printed(rollsim, tmp_path):
    words = ("replay", "example:online", "--profile", "qwen3-8b-h100-tp1-bf16", "--out", tmp_path / "run", "--quiet")
    _, printed, _ = rollsim(*words)
    assert rollsim("show", tmp_path / "run") == (0, printed, "")


def test_replications_print_what_they_printed(rollsim, tmp_path):
    words = ("example:sync", "train.steps=1", "train.prompts_per_step=8", "--replications", 11, "--seed", 3, "--quiet")
    code, printed, _ = rollsim("run", *words, "--out", tmp_path / "runs")
    assert code == 0
    assert "MEANS OF 11 REPLICATIONS" in printed
    assert max(map(len, printed.splitlines())) <= 80
    code, out, err = rollsim("show", tmp_path / "runs")
    assert (code, err) == (0, "")
    assert out.splitlines()[:-1] == printed.splitlines()[:-1]
    assert "Seeds 3, 4, 5, 6, 7, 8, 9, 10, ...; t intervals." in out
    one, several = (json.loads(rollsim("show", tmp_path / name, "--json")[1]) for name in ("runs/rep-10", "runs"))
    assert several["seeds"] == list(range(3, 14))
    assert several["runs"][10] == one
    mean = sum(run["steps"]["step_s"]["mean"] for run in several["runs"]) / 11
    assert several["means"]["a step, s"]["mean"] == pytest.approx(mean)


def test_several_replays_are_no_replications(rollsim, tmp_path):
    for name in ("a", "b"):
        rollsim("replay", "example:online", "--profile", "qwen3-8b-h100-tp1-bf16", "--out", tmp_path / "runs" / name)
    code, out, err = rollsim("show", tmp_path / "runs")
    assert (code, out) == (2, "")
    assert "holds several replays" in err


def test_a_folder_of_something_else(rollsim, tmp_path):
    code, out, err = rollsim("show", tmp_path)
    assert (code, out) == (2, "")
    assert "no run in it" in err
    code, _, err = rollsim("show", tmp_path / "absent", "--json")
    assert code == 2
    assert "no such folder" in json.loads(err)["faults"][0]["text"]


def test_a_run_without_rollouts(rollsim, tmp_path):
    write_run(tmp_path / "run", {"ledger": loops.ledger()}, {}, {})
    code, _, err = rollsim("show", tmp_path / "run")
    assert code == 2
    assert "no such table" in err

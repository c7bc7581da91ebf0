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


def test_a_folder_of_something_else(rollsim, tmp_path):
    code, out, err = rollsim("show", tmp_path)
    assert (code, out) == (2, "")
    assert "not a run folder" in err
    code, _, err = rollsim("show", tmp_path / "absent", "--json")
    assert code == 2
    assert "no such folder" in json.loads(err)["faults"][0]["text"]


def test_a_run_without_rollouts(rollsim, tmp_path):
    write_run(tmp_path / "run", {"ledger": loops.ledger()}, {}, {})
    code, _, err = rollsim("show", tmp_path / "run")
    assert code == 2
    assert "no such table" in err

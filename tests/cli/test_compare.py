"""`rollsim compare` as a user sees it."""

import json

import numpy as np
import pytest

from rollsim.cli.app import main
from rollsim.traces.writer import write_run
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


def write(folder, factor, seed=0):
    """The tiny loop, stretched; what is added is time in which the trainer starves."""
    gpu_s = np.array([36.0, 20.0, 16.0, 8.0, 32.0, 40.0 + 160 * (factor - 1), 8.0])
    steps = loops.steps(published_s=np.array([16.0, 40.0]) * factor)
    write_run(
        folder,
        loops.loop() | {"steps": steps, "ledger": loops.ledger(gpu_s=gpu_s)},
        {"x": {"y": factor}},
        {},
        seed=seed,
    )


def test_two_runs(rollsim, tmp_path):
    write(tmp_path / "a", 1.0)
    write(tmp_path / "b", 1.5)
    code, out, err = rollsim("compare", tmp_path / "a", tmp_path / "b")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= max(80, 3 + len(str(tmp_path / "a")))
    assert "x.y: 1.0 -> 1.5" in out
    step = next(line for line in out.splitlines() if line.startswith("step time, s"))
    assert step.split()[3:7] == ["20.00", "30.00", "+10.00", "50.0%"]
    explained = out[out.index("WHAT EXPLAINS") :].splitlines()
    assert explained[1].startswith("train: starved: no batch")
    assert explained[1].split()[-1] == "+10.00"
    assert any(line.startswith("all: the difference in step time") and line.endswith("+10.00") for line in explained)


def test_replications_are_paired_by_seed(rollsim, tmp_path):
    for seed in (1, 2, 3):
        write(tmp_path / "a" / f"rep-{seed}", seed, seed)
        write(tmp_path / "b" / f"rep-{9 - seed}", seed + 0.1, seed)
    code, out, _ = rollsim("compare", tmp_path / "a", tmp_path / "b", "--json")
    document = json.loads(out)
    assert (code, document["pairing"], document["pairs"]) == (0, "seed", 3)
    step = next(row for row in document["differences"] if row["name"] == "step_s")
    assert step["difference"]["low"] == pytest.approx(2.0)
    assert step["difference"]["high"] == pytest.approx(2.0)
    assert sum(row["difference_s"] for row in document["explained"]) == pytest.approx(2.0)


def test_all_faults_of_both_at_once(rollsim, tmp_path):
    code, _, err = rollsim("compare", tmp_path / "a", tmp_path / "b")
    assert code == 2
    assert "2 faults" in err


def test_what_cannot_be_paired(rollsim, tmp_path):
    for seed in (1, 2):
        write(tmp_path / "a" / f"rep-{seed}", 1.0, seed)
    write(tmp_path / "b", 1.0, 7)
    code, _, err = rollsim("compare", tmp_path / "a", tmp_path / "b")
    assert code == 2
    assert "nothing to pair" in err

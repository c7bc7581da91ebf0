"""`rollsim doctor` names what is missing and never crashes."""

import json
import subprocess

import pytest

from rollsim.cli import checkup
from rollsim.cli.app import main


def doctor(capsys, *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(["doctor", *words])
    return int(end.value.code or 0), capsys.readouterr().out


def test_a_sound_installation_is_ok(capsys):
    code, printed = doctor(capsys, "--json")
    document = json.loads(printed)
    assert code == 0, printed
    assert document["ok"] is True
    assert {"Python", "numpy", "numba", "kernel", "profiles", "CPUs", "GPU", "disk"} <= set(document["findings"])
    assert document["findings"]["profiles"]["found"] >= 1


def test_the_table_says_the_same(capsys):
    code, printed = doctor(capsys)
    assert code == 0
    assert "PROBLEM" not in printed
    assert "kernel" in printed


def test_a_missing_dependency_is_a_problem_with_its_remedy(capsys, monkeypatch):
    real = checkup._requirements()
    monkeypatch.setattr(checkup, "_requirements", lambda: ([*real[0], "no-such-thing"], real[1]))
    code, printed = doctor(capsys, "--json")
    finding = json.loads(printed)["findings"]["no-such-thing"]
    assert code == 1
    assert not finding["ok"]
    assert "no-such-thing" in finding["found"]


def test_an_extra_that_is_missing_is_no_problem():
    finding = checkup._extra("report", ["no-such-thing"])
    assert finding.ok
    assert "pip install 'rollsim[report]'" in finding.found


def test_an_examination_that_fails_is_a_finding():
    (finding,) = checkup._examined("kernel", lambda: 1 / 0)  # type: ignore[arg-type]
    assert not finding.ok
    assert "ZeroDivisionError" in finding.found


def test_a_cache_that_cannot_be_written_is_a_problem(monkeypatch):
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(checkup.tempfile, "TemporaryFile", refuse)
    finding = list(checkup._kernel())[-1]
    assert not finding.ok
    assert "ROLLSIM_CACHE_DIR" in finding.found


@pytest.mark.parametrize(("answer", "found"), [("NVIDIA H200, 143771 MiB\n", "H200"), ("", "none found")])
def test_gpus_are_named_if_the_driver_answers(monkeypatch, answer, found):
    monkeypatch.setattr(checkup.shutil, "which", lambda _: "nvidia-smi")
    monkeypatch.setattr(
        checkup.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0 if answer else 9, answer, "")
    )
    (finding,) = checkup._gpu()
    assert finding.ok
    assert found in finding.found

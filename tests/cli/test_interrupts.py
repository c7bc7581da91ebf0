"""An interrupt, a full disk, a reader that has gone: a line on stderr, the exit code, and no half file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROFILE = "qwen3-8b-h100-tp1-bf16"
REPLAY = ("replay", "example:grpo", "--profile", PROFILE, "--quiet")

START = """
import os, resource, signal, sys

moment = sys.argv[1]

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
{before}
from rollsim.cli.start import main
sys.argv[:2] = ["rollsim"]
main()
"""
AT_A_TABLE = """
from rollsim.traces import writer
write = writer._write_table
def interrupted(file, table):
    write(file, table)
    os.kill(os.getpid(), signal.SIGINT)
writer._write_table = interrupted
"""
NO_LARGE_FILES = "resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))"


def start(moment: str, *words: str, before: str = "", **streams) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START.format(before=before), moment, *words],
        text=True, timeout=120, check=False, **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams),
    )  # fmt: skip


@pytest.mark.parametrize(
    "module",
    ["typer", "rollsim.cli.console", "numpy", "pyarrow", "numba", "rollsim.simulator.replay", "rollsim.traces.kpis"],
)
def test_an_interrupt_while_a_module_is_imported_is_one_line(module, tmp_path):
    done = start(module, *REPLAY, "--out", str(tmp_path / "run"))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_a_run_is_written_leaves_nothing(tmp_path):
    done = start("", *REPLAY, "--out", str(tmp_path / "run"), before=AT_A_TABLE)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_when_all_is_done_is_none(tmp_path):
    before = "import atexit; atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))"
    done = start("", "laws", "list", before=before)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "words", [REPLAY, (*REPLAY, "--json"), ("profiles", "list"), ("doctor",), ("laws", "list", "--json"), ("--help",)]
)
def test_a_full_disk_behind_stdout_is_one_line(words):
    with Path("/dev/full").open("w") as full:
        done = start("", *words, stdout=full)
        assert (done.returncode, done.stderr) == (1, "stopped: No space left on device\n")
        assert start("", *words, stdout=full, stderr=full).returncode == 1


@pytest.mark.parametrize("words", [(*REPLAY, "--json"), ("profiles", "list")])
def test_a_reader_that_has_gone_is_no_fault_of_ours(words):
    read, write = os.pipe()
    os.close(read)
    done = start("", *words, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_disk_that_fills_while_a_run_is_written_leaves_nothing(tmp_path):
    done = start("", *REPLAY, "--out", str(tmp_path / "run"), before=NO_LARGE_FILES)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_while_profiles_are_built_leaves_no_half_file(tmp_path):
    from rollsim.simulator.profile_store import load_profile

    code = (
        f"import pathlib, resource; {NO_LARGE_FILES}\n"
        "from rollsim.simulator.profile_store import load_profile\n"
        f"load_profile({PROFILE!r}).write(pathlib.Path({str(tmp_path / 'p.json')!r}))"
    )
    load_profile(PROFILE).write(tmp_path / "p.json")
    older = (tmp_path / "p.json").read_text()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "File too large" in done.stderr
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("p.json", older)]


def test_too_little_memory_is_one_line(monkeypatch, capsys):
    from rollsim.cli import app

    def greedy(**_: object) -> None:
        raise MemoryError("Unable to allocate 13 TiB")

    monkeypatch.setattr(app, "app", greedy)
    with pytest.raises(SystemExit) as end:
        app.main(["doctor"])
    assert end.value.code == 1
    assert capsys.readouterr().err == "stopped: not enough memory\n"


def test_sigint_is_the_default_handlers_again_for_others():
    """`app.main` changes nothing of the process that calls it."""
    from rollsim.cli.app import main

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert signal.getsignal(signal.SIGINT) is before

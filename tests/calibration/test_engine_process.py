"""The engine's process: what it answers, and how its end is told."""

import sys
import textwrap

import pytest

from rollsim.calibration import engine_worker
from rollsim.calibration.batch import Batch, Request, from_document
from rollsim.calibration.engine_faults import KINDS, EngineFailed, EngineMoved, EngineUnfit
from rollsim.calibration.engine_process import EngineProcess

OPENS = """
import json, os, signal, sys
sys.stdin.readline()
print(json.dumps({"ok": {"limits": {}}}), flush=True)
line = json.loads(sys.stdin.readline())
"""


@pytest.fixture
def process(tmp_path, monkeypatch):
    def start(code: str) -> EngineProcess:
        monkeypatch.setattr(EngineProcess, "command", (sys.executable, "-c", textwrap.dedent(code)))
        return EngineProcess("model", {}, 0, tmp_path / "engine.log")

    return start


def batch() -> Batch:
    return Batch("b", "a test", "fit", (Request("r0", 4, 2), Request("r1", 4, 2, "g", 1, 0, None, "r0")), {"x": 1})


def test_a_batch_survives_the_way():
    assert from_document(batch().document()) == batch()


def test_answers_come_back(process):
    with process(OPENS + "print(json.dumps({'ok': line['batch']}), flush=True); sys.stdin.readline()") as engine:
        assert engine.facts == {"limits": {}}
        assert from_document(engine.record(batch())) == batch()


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_of_the_engine_is_raised_as_what_it_is(process, kind):
    answer = f"print(json.dumps({{'failed': {kind!r}, 'message': 'so it is'}}), flush=True); sys.stdin.readline()"
    with process(OPENS + answer) as engine, pytest.raises(KINDS[kind], match="so it is"):
        engine.record(batch())


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed, as a machine does that is out of memory"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", r"crashed \(SIGSEGV\)"),
        ("raise RuntimeError('the pool is broken')", r"crashed \(exit code 1\): RuntimeError: the pool is broken"),
        ("os._exit(0)", r"crashed \(exit code 0\)"),
    ],
    ids=["killed", "segfault", "exception", "gone"],
)
def test_the_end_of_the_process_is_told_in_a_line(process, end, told):
    with process(OPENS + end) as engine, pytest.raises(EngineFailed, match=told) as failed:
        engine.record(batch())
    assert "\n" not in str(failed.value)


def test_a_process_that_ends_at_once_is_a_fault(process):
    with pytest.raises(EngineFailed, match="no such module"):
        process("import sys; print('Error: no such module', file=sys.stderr); sys.exit(3)")


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (EngineMoved("has no x"), "moved", "has no x"),
        (EngineUnfit("no memory"), "unfit", "no memory"),
        (MemoryError("12 GiB"), "failed", "out of memory: 12 GiB"),
        (
            RuntimeError("Allocator: can't allocate memory: you\nmore"),
            "failed",
            "out of memory: Alloc",
        ),
        (KeyError("x"), "failed", "KeyError: 'x'"),
        (RuntimeError(), "failed", "RuntimeError: no message"),
    ],
)
def test_whatever_is_raised_is_answered_in_a_line(error, kind, told):
    def do(_command):
        raise error

    answer = engine_worker.answer(do, "{}")
    assert answer["failed"] == kind
    assert answer["message"].startswith(told)
    assert "\n" not in answer["message"]

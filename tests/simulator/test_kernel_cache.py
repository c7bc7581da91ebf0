"""What a user is told about the compiled kernel, what is compiled then, and that asking costs no compiler's import."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollsim.simulator import replay_run, simulate
from rollsim.simulator.engine_options import EngineOptions
from rollsim.simulator.kernel import ENTRY_POINTS, cache_state, compile_notice


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLSIM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    return tmp_path


@pytest.mark.parametrize("work", ENTRY_POINTS)
def test_a_fresh_machine_is_told_until_all_that_the_work_calls_is_there(empty_cache, work):
    folder = Path(cache_state(work)["folder"])
    assert folder.parent == empty_cache
    place = folder / "kernel_0"
    place.mkdir(parents=True)
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    for name in ENTRY_POINTS[work]:
        assert cache_state(work) == {"compiled": False, "folder": str(folder)}
        assert str(folder) in compile_notice(work)
        (place / f"{name}-1.py{version}.nbi").touch()
    assert cache_state(work) == {"compiled": True, "folder": str(folder)}
    assert compile_notice(work) is None


def test_nothing_is_announced_where_nothing_will_be_compiled(empty_cache, monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert [compile_notice(work) for work in ENTRY_POINTS] == [None] * len(ENTRY_POINTS)


def test_the_kernel_that_ran_is_found_compiled():
    from rollsim.simulator.kernel import decode, jit, loop

    if not hasattr(loop.run, "stats"):
        pytest.skip("the compiler is switched off")
    assert loop.run.stats.cache_path.startswith(cache_state("run")["folder"])
    assert decode.output_tokens.stats.cache_path.startswith(str(jit.cache_dir()))


def test_asking_imports_no_compiler():
    script = (
        "import sys; from rollsim.simulator import kernel; kernel.cache_state('run'); print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


COMPILED = """
import json, sys
from importlib import import_module
from rollsim.cli.app import main
from rollsim.simulator.kernel import ENTRY_POINTS
from rollsim.simulator.warm_up import warm_up

work, *words = sys.argv[1:]
names = {name for names in ENTRY_POINTS.values() for name in names}

def signatures():
    found = {}
    for name in names:
        module, function = name.split(".")
        entry = getattr(import_module(f"rollsim.simulator.kernel.{module}"), function)
        found[name] = [str(signature) for signature in entry.signatures]
    return found

warm_up(work)
before = signatures()
try:
    main(words)
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps([before, signatures()]))
"""


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ("replay", ["replay", "example:online", "--profile", "qwen3-8b-h100-tp1-bf16", "--replicas", "2"]),
        ("recordings", ["replay", "--recording", "tests/data/vllm_golden.tar.xz"]),
        ("run", ["run", "example:async", "train.steps=3"]),
        ("run", ["run", "example:sync", "train.steps=2"]),
        ("run", ["run", "example:partial", "train.steps=2"]),
    ],
)
def test_after_the_notice_a_command_compiles_nothing_and_every_entry_has_one_signature(repository, work, words):
    """Else the wait for the compiler would be counted as the run's, and each callee compiled twice."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILED, work, *words], capture_output=True, text=True, cwd=repository, check=True
    )
    before, after = json.loads(done.stdout.splitlines()[-1])
    if not any(before.values()):
        pytest.skip("the compiler is switched off")
    assert after == before
    assert {name: len(after[name]) for name in ENTRY_POINTS[work]} == dict.fromkeys(ENTRY_POINTS[work], 1)
    assert max(map(len, after.values())) == 1


@pytest.mark.parametrize("module", [replay_run, simulate])
def test_the_wait_for_the_compiler_is_not_the_runs(monkeypatch, module):
    """What a run says of its own duration begins when the kernel is ready."""
    wait_s = 3.0
    monkeypatch.setattr(module, "warm_up", lambda _: time.sleep(wait_s))
    if module is replay_run:
        prepared = replay_run.prepare(["example:grpo"], "qwen3-8b-h100-tp1-bf16", EngineOptions())
        assert replay_run.execute(prepared).wall_s < wait_s
    else:
        config = simulate.load("example:sync", ["train.steps=1"])
        (setup,) = simulate.replications(config, "example:sync", 0, 1)
        assert simulate.simulate(setup).wall_s < wait_s

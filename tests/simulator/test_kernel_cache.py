"""What a user is told about the compiled kernel, and that asking costs no import of the compiler."""

import subprocess
import sys
from pathlib import Path

import pytest

from rollsim.simulator.kernel import cache_state, compile_notice


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLSIM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    return tmp_path


def test_a_fresh_machine_is_told_once_where_the_kernel_goes(empty_cache):
    state = cache_state()
    folder = Path(state["folder"])
    assert state["compiled"] is False
    assert folder.parent == empty_cache
    assert str(folder) in compile_notice()
    place = folder / "kernel_0"
    place.mkdir(parents=True)
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    (place / f"loop.run-1.py{version}.nbi").touch()
    assert cache_state() == {"compiled": True, "folder": str(folder)}
    assert compile_notice() is None


def test_nothing_is_announced_where_nothing_will_be_compiled(empty_cache, monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert compile_notice() is None


def test_the_kernel_that_ran_is_found_compiled():
    from rollsim.simulator.kernel import decode, jit, loop

    if not hasattr(loop.run, "stats"):
        pytest.skip("the compiler is switched off")
    assert loop.run.stats.cache_path.startswith(cache_state()["folder"])
    assert decode.output_tokens.stats.cache_path.startswith(str(jit.cache_dir()))


def test_asking_imports_no_compiler():
    script = (
        "import sys; from rollsim.simulator.kernel import cache_state; cache_state(); print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

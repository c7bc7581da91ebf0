"""Imports flow one way: cli, calibration, simulator, policies, traces."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.test_house_style import LAYERS

COMMAND = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]


def lint_imports(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        COMMAND, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_layers_hold(repository):
    done = lint_imports(repository)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_import_against_the_flow_is_found(repository, tmp_path):
    for layer in LAYERS:
        shutil.copytree(repository / layer, tmp_path / "rollsim" / layer, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(repository / "pyproject.toml", tmp_path)
    with (tmp_path / "rollsim" / "traces" / "errors.py").open("a") as file:
        file.write("\nimport rollsim.cli.console\n")
    done = lint_imports(tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode != 0
    assert "rollsim.traces.errors -> rollsim.cli.console" in done.stdout

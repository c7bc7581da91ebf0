"""The wheel claims the one name `rollsim` and forgets no sub-package and no data."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.test_house_style import LAYERS

DATA = (
    "simulator/profiles/*.json",
    "simulator/catalogue/*",
    "simulator/laws/*.json",
    "simulator/examples/*.yaml",
    "calibration/length_sources/*.yaml",
    "traces/examples/*.parquet",
    "traces/examples/*.csv",
    "*/py.typed",
)


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory) -> Path:
    """Build a wheel from a copy, since building leaves files in the source tree that a next build would pack."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(repository / name, source)
    for folder in (*LAYERS, "tests"):
        shutil.copytree(repository / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__", "data"))
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(source / "dist"),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_only_top_level_name_is_rollsim(names):
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"rollsim"}


def test_no_module_and_no_data_is_forgotten(names, repository):
    code = [file for layer in LAYERS for file in (repository / layer).rglob("*.py")]
    data = [file for pattern in DATA for file in repository.glob(pattern)]
    wanted = {f"rollsim/{file.relative_to(repository).as_posix()}" for file in [*code, *data] if file.is_file()}
    assert len(data) >= len(LAYERS) + 2
    assert wanted - names == set()
    assert {name for name in names if name.startswith("rollsim/")} - wanted == set()


def test_licence_and_notice_travel_with_it(names):
    assert {Path(name).name for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}


def test_it_runs_from_the_wheel_alone(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        "import rollsim.traces.requests as r; t = r.read_requests('example:grpo'); "
        "import rollsim.cli.app as a; print(len(t), a.__file__, r.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    count, *files = done.stdout.split()
    assert count == "2048"
    assert all(file.startswith(str(tmp_path)) for file in files)

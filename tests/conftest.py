"""Shared by all tests: hypothesis tries the same examples on every machine, unless it is told to explore."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the repository."""
    return Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_data(repository: Path) -> Path:
    """Folder of recorded data beside the repository; skips where it is not there."""
    folder = repository.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared data folder is not beside the repository")
    return folder

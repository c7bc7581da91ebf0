"""The recordings of real vLLM 0.32.0 that judge every engine; their README lies in the archive."""

from functools import cache
from pathlib import Path

from rollsim.simulator.recording import Recording, read_recordings

ARCHIVE = Path(__file__).parent / "data" / "vllm_golden.tar.xz"


@cache
def golden_recordings() -> dict[str, Recording]:
    """Return the recordings by the name of their file."""
    return {recording.name.removesuffix(".json"): recording for recording in read_recordings(ARCHIVE)}

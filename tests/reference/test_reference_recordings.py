"""The reference does what real vLLM did, in every step of every recording."""

import pytest

from rollsim.simulator.judge import replay_recording
from tests.golden import golden_recordings
from tests.reference.stepped import SteppedReference


def test_all_recordings_are_there():
    recordings = golden_recordings().values()
    assert sum(not recording.is_async for recording in recordings) == 26
    assert sum(recording.is_async for recording in recordings) == 7


@pytest.mark.parametrize("name", golden_recordings())
def test_reference_equals_the_recording_in_every_step(name):
    recording = golden_recordings()[name]
    comparison = replay_recording(recording, SteppedReference(recording.limits))
    assert comparison.difference is None
    assert comparison.requests == ()
    assert comparison.equal_steps == comparison.steps == len(recording.rows)
    assert comparison.preemptions == sum(map(len, recording.preempted))

"""What is counted of each recorded step is what the kernel charges for."""

from dataclasses import replace

import numpy as np
import pytest

from rollsim.calibration.step_features import features
from rollsim.simulator.costs import StepCost
from rollsim.simulator.judge import replay_recording
from rollsim.simulator.stepped_replica import SteppedReplica
from rollsim.traces.errors import BadInput
from tests.golden import golden_recordings


def some_cost(limits) -> StepCost:
    rng = np.random.default_rng(7)
    decode_s, mixed_s = rng.uniform(1e-3, 2e-2, (2, limits.max_num_batched_tokens + 1))
    decode_s[0] = mixed_s[0] = 0.0
    return StepCost(
        host_s=3e-3,
        overlap=limits.async_scheduling,
        decode_s=decode_s,
        mixed_s=mixed_s,
        kv_read_s=rng.uniform(1e-7, 1e-6, limits.max_num_seqs + 1),
        prefill_attn_s=2e-9,
        context_knots=np.zeros(1),
        context_slopes=np.ones(1),
        context_offsets=np.zeros(1),
    )


class Clocked(SteppedReplica):
    """Notes when every step ends."""

    def __init__(self, limits, cost):
        super().__init__(limits, cost)
        self.ends_s = [0.0]

    def step(self):
        step = super().step()
        if step is not None:
            self.ends_s.append(self.now_s)
        return step


@pytest.mark.parametrize("name", sorted(golden_recordings()))
def test_the_cost_of_what_is_counted_is_what_the_kernel_takes(name):
    recording = golden_recordings()[name]
    cost = some_cost(recording.limits)
    engine = Clocked(recording.limits, cost)
    assert replay_recording(recording, engine).equal
    np.testing.assert_allclose(features(recording).seconds(cost), np.diff(engine.ends_s), rtol=1e-9, atol=1e-12)


def test_a_recording_of_other_steps_is_refused_at_the_first():
    recording = golden_recordings()["01_long_tail_seqs16"]
    rows = list(recording.rows)
    rows[7] = (*rows[7][:1], rows[7][1] + 1, *rows[7][2:])
    with pytest.raises(BadInput, match="step 7: the simulator takes other steps: prefill_tokens"):
        features(replace(recording, rows=tuple(rows)))

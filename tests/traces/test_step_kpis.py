"""Step time, its parts and tokens per GPU against hand calculations."""

import numpy as np
import pytest

from rollsim.traces.schema import build
from rollsim.traces.step_kpis import step_kpis, wall_clock
from tests.traces import loops


def test_steps_by_hand():
    found = step_kpis(loops.loop())
    assert (found.steps, found.span_s, found.gpus) == (2, 40.0, 4.0)
    assert (found.step_s.mean, found.later_s.mean, found.later_s.low) == (20.0, 24.0, None)
    assert found.step_s.half_width == pytest.approx(12.706 * np.std([16, 24], ddof=1) / np.sqrt(2), rel=1e-4)
    assert found.parts_s == {"generate_s": 10.0, "train_s": 7.0, "weight_sync_s": 2.0, "other_s": 1.0}
    assert found.trained_tokens == 80 + 36
    assert found.trained_tokens_per_gpu_s == 116 / 160
    assert found.generated_tokens_per_gpu_s == 65 / 160


def test_the_parts_add_up_to_the_step():
    table = loops.steps(switch_s=np.array([0.5, 0.25]), logprob_s=np.array([0.1, 0.3]), drain_s=np.array([0.0, 0.7]))
    found = step_kpis({"steps": table})
    assert sum(found.parts_s.values()) == pytest.approx(found.step_s.mean)
    assert found.parts_s["switch_s"] == 0.375
    assert (found.gpus, found.trained_tokens_per_gpu_s, found.generated_tokens_per_gpu_s) == (None, None, None)


def test_a_percentile_needs_enough_steps():
    assert step_kpis(loops.loop()).spread_s.percentiles == {"p50": 16.0, "p95": None, "p99": None}


def test_where_publication_is_not_known_it_is_the_end_of_the_sync():
    table = loops.steps(published_s=np.full(2, np.nan))
    assert step_kpis({"steps": table}).step_s.mean == 39.0 / 2


def test_the_order_of_rows_does_not_matter():
    table = loops.steps()
    assert step_kpis({"steps": table.take([1, 0])}) == step_kpis({"steps": table})


def test_no_steps_at_all():
    empty = build("steps", {"step": np.empty(0, int)})
    found = step_kpis({"steps": empty, "ledger": loops.ledger()})
    assert (found.steps, found.span_s, found.step_s.n, found.parts_s) == (0, None, 0, {})
    assert wall_clock(empty, 5) is None


def test_wall_clock_as_simulated_and_beyond():
    three = loops.steps(
        step=np.arange(3), version=np.arange(3), t0_s=np.zeros(3), t1_s=np.zeros(3), generate_s=np.zeros(3),
        published_s=np.array([16.0, 36.0, 60.0]), train_s=np.zeros(3), weight_sync_s=np.zeros(3),
        trajectories=np.zeros(3, int), prompt_tokens=np.zeros(3, int), output_tokens=np.zeros(3, int),
    )  # fmt: skip
    second = wall_clock(three, 2, usd_per_s=0.5)
    assert second is not None
    assert (second.seconds, second.extrapolated, second.low_s, second.usd) == (36.0, False, None, 18.0)
    tenth = wall_clock(three, 10, usd_per_s=0.5)
    assert tenth is not None
    assert (tenth.seconds, tenth.extrapolated, tenth.usd) == (60 + 7 * 22, True, (60 + 7 * 22) / 2)
    half = 7 * 12.706 * np.std([20, 24], ddof=1) / np.sqrt(2)
    assert tenth.high_s - tenth.seconds == pytest.approx(half, rel=1e-4)


def test_a_single_step_goes_on_without_an_interval():
    found = wall_clock(loops.steps().slice(0, 1), 3)
    assert found is not None
    assert (found.seconds, found.extrapolated, found.low_s, found.usd) == (48.0, True, None, None)

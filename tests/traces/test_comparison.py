"""Paired comparisons by hand: pairing, intervals, and ledger lines that add up."""

from dataclasses import asdict

import numpy as np
import pytest

from rollsim.traces.comparison import compare
from rollsim.traces.errors import BadInput
from rollsim.traces.measured import measure
from tests.traces import loops


def slower(factor, seed=None):
    """The tiny loop with steps of 16 and 24 s stretched, the rest of the GPU time in the train pool's starvation."""
    steps = loops.steps(published_s=np.array([16.0, 40.0]) * factor)
    gpu_s = np.array([36.0, 20.0, 16.0, 8.0, 32.0, 40.0 + 160 * (factor - 1), 8.0])
    return measure({"rollouts": loops.rollouts(), "steps": steps, "ledger": loops.ledger(gpu_s=gpu_s)}, seed)


def named(found, name):
    return next(row for row in found.differences if row.name == name)


def test_what_a_run_is_measured_by():
    run = slower(1.0)
    assert run.headline == {
        "bubble_share": 56 / 160,
        "step_s": 20.0,
        "span_s": 40.0,
        "trained_tokens_per_gpu_s": 116 / 160,
        "generated_tokens_per_gpu_s": 65 / 160,
        "staleness_mean": 0.375,
    }
    assert run.by_step["step_s"].tolist() == [16.0, 24.0]
    assert run.by_step["trained_tokens_per_gpu_s"].tolist() == [50 / 64, 66 / 96]
    assert run.lines["rollout", "decode", None] == 56 / (4 * 2)
    assert sum(run.lines.values()) == pytest.approx(20.0)


def test_two_single_runs_are_paired_by_step():
    found = compare([slower(1.0)], [slower(1.5)])
    assert (found.pairing, found.pairs) == ("step", 2)
    step = named(found, "step_s")
    assert (step.a, step.b, step.difference.mean) == (20.0, 30.0, 10.0)
    assert step.difference.half_width == pytest.approx(12.706 * np.std([8, 12], ddof=1) / np.sqrt(2), rel=1e-4)
    assert asdict(named(found, "span_s").difference) == {"n": 1, "mean": 20.0, "low": None, "high": None}
    assert any("depend on each other" in note for note in found.notes)


def test_replications_are_paired_by_seed_and_not_by_order():
    """The seeds differ far more than A and B do: only pairing finds the difference."""
    a = [slower(1.0 + seed, seed) for seed in (1, 2, 3)]
    b = [slower(1.0 + seed + 0.1, seed) for seed in (3, 1, 2)]
    found = compare(a, b)
    assert (found.pairing, found.pairs) == ("seed", 3)
    step = named(found, "step_s").difference
    assert step.mean == pytest.approx(2.0)
    assert step.half_width == pytest.approx(0.0, abs=1e-9)
    unpaired = [run.headline["step_s"] for run in a]
    assert np.std(unpaired) > 10


def test_replications_without_a_partner_are_left_out_and_said():
    found = compare([slower(1.0, 1), slower(1.0, 2)], [slower(1.2, 2), slower(1.2, 9)])
    assert found.pairs == 1
    assert "2 replications have no partner" in found.notes[0]
    assert named(found, "step_s").difference.low is None


def test_no_common_seed_is_refused():
    with pytest.raises(BadInput, match="nothing to pair"):
        compare([slower(1.0, 1), slower(1.0, 2)], [slower(1.0, 3)])


def test_the_ledger_explains_the_whole_difference():
    found = compare([slower(1.0)], [slower(1.5)])
    first = found.explained[0]
    assert (first.pool, first.category, first.cause) == ("train", "starved", "no batch")
    assert first.difference_s == pytest.approx(10.0)
    assert found.explained_total_s == pytest.approx(10.0)
    assert found.explained_total_s == pytest.approx(named(found, "step_s").difference.mean)
    assert [abs(row.difference_s) for row in found.explained] == sorted(
        (abs(row.difference_s) for row in found.explained), reverse=True
    )


def test_runs_of_different_length_pair_what_they_share():
    one = measure({"rollouts": loops.rollouts(), "steps": loops.steps().slice(0, 1), "ledger": loops.ledger()})
    found = compare([one], [slower(1.0)])
    assert found.pairs == 1
    assert any("A has 1 steps and B 2" in note for note in found.notes)


def test_runs_without_steps_compare_their_makespans():
    tables = {"rollouts": loops.rollouts(), "ledger": loops.ledger()}
    found = compare([measure(tables)], [measure(tables)])
    assert (found.pairing, found.pairs) == ("none", 1)
    assert named(found, "makespan_s").a == 25.0
    assert found.explained_total_s == 0.0


def test_with_and_without_steps_do_not_compare():
    with pytest.raises(BadInput, match="cannot be compared"):
        compare([measure({"rollouts": loops.rollouts()})], [slower(1.0)])

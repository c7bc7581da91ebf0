"""Every invariant holds for a correct run and is broken by a wrong one, at the right rows."""

import numpy as np
import pyarrow as pa
import pytest

from rollsim.simulator.invariants import check, same
from rollsim.simulator.leases import Lease
from rollsim.traces.schema import build
from tests.traces import loops


def broken(tables, **known):
    found = check(tables, gpus=loops.GPUS, span_s=loops.SPAN_S, **known)
    return {finding.id: finding for finding in found if not finding.ok}


def segments(tokens):
    return build("segments", {"sample_id": pa.array(["0"]), "kind": pa.array(["decode"]), "tokens": np.array([tokens])})


def test_a_correct_run():
    leases = [Lease("rollout", 0, 2, 0.0, 40.0), Lease("train", 2, 2, 0.0, 40.0)]
    found = check(loops.loop(), gpus=loops.GPUS, span_s=loops.SPAN_S, hard_eta=1, leases=leases)
    assert [finding for finding in found if not finding.ok] == []
    assert {finding.id for finding in found} == {"INV-1", "INV-2", "INV-3", "INV-4", "INV-5", "INV-6", "INV-12"}


@pytest.mark.parametrize("relative", [2e-9, -2e-9])
def test_inv_1_a_ledger_that_does_not_add_up(relative):
    table = loops.ledger()
    gpu_s = table["gpu_s"].to_numpy().copy()
    gpu_s[0] += relative * loops.GPUS * loops.SPAN_S
    found = broken(loops.loop() | {"ledger": loops.ledger(gpu_s=gpu_s)})
    assert list(found) == ["INV-1"]
    assert found["INV-1"].worst == pytest.approx(2e-9, rel=1e-3)


def test_inv_1_a_negative_line():
    gpu_s = np.array([36.0, 20.0, 16.0, 8.0, 80.0, -8.0, 8.0])
    found = broken(loops.loop() | {"ledger": loops.ledger(gpu_s=gpu_s)})["INV-1"]
    assert (found.rows, found.table) == ((5,), "ledger")


def test_inv_2_a_trajectory_without_a_fate():
    fate = pa.array(["trained"] * 8 + [None, "undecided"])
    found = broken(loops.loop() | {"rollouts": loops.rollouts(fate=fate)})["INV-2"]
    assert (found.rows, found.worst) == ((8,), 20.0)


def test_inv_2_trained_without_a_step():
    fate = pa.array(["trained"] * 9 + ["undecided"])
    assert broken(loops.loop() | {"rollouts": loops.rollouts(fate=fate)})["INV-2"].rows == (8,)


@pytest.mark.parametrize(("tokens", "ids"), [(56, []), (55, ["INV-2"])])
def test_inv_2_segments_hold_the_tokens(tokens, ids):
    assert list(broken(loops.loop() | {"segments": segments(tokens)})) == ids


def test_inv_3_more_blocks_than_there_are():
    found = broken(loops.loop() | {"gauges": loops.gauges(kv_used_blocks=np.array([7, 9]))})["INV-3"]
    assert (found.rows, found.worst) == ((1,), 1.0)


def test_inv_3_blocks_that_nobody_frees():
    found = broken(loops.loop() | {"gauges": loops.gauges(running=np.array([0, 5]))})["INV-3"]
    assert (found.rows, found.worst) == ((0,), 7.0)


def test_inv_4_a_hard_bound():
    assert list(broken(loops.loop(), hard_eta=1)) == []
    found = broken(loops.loop(), hard_eta=0)["INV-4"]
    assert (found.rows, found.worst, found.count) == ((4, 6, 7), 1.0, 3)


def test_inv_4_trained_by_older_weights():
    found = broken(loops.loop() | {"rollouts": loops.rollouts(version_start=np.array([0, 0, 0, 3, 0, 1, 0, 0, 0, 1]))})
    assert found["INV-4"].rows == (3,)


def test_inv_5_two_rows_of_one_trajectory():
    names = pa.array(["0", "1", "2", "3", "4", "5", "6", "7", "8", "0"])
    found = broken(loops.loop() | {"rollouts": loops.rollouts(sample_id=names)})["INV-5"]
    assert found.worst == 1.0


@pytest.mark.parametrize("name", ["trajectories", "prompt_tokens", "output_tokens"])
def test_inv_5_a_step_that_counts_wrong(name):
    values = loops.steps()[name].to_numpy().copy()
    values[1] += 3
    found = broken(loops.loop() | {"steps": loops.steps(**{name: values})})["INV-5"]
    assert (found.rows, found.worst) == ((1,), 3.0)


def test_inv_5_a_step_that_never_was():
    step = np.ma.masked_less([0, 0, 0, 0, 1, 1, 1, 7, -1, -1], 0)
    assert broken(loops.loop() | {"rollouts": loops.rollouts(step_trained=step)})["INV-5"].rows == (7,)


@pytest.mark.parametrize("name", ["t_submit_s", "t_start_s", "t_first_token_s", "t_end_s"])
def test_inv_6_time_runs_back(name):
    values = loops.rollouts()[name].to_numpy(zero_copy_only=False).copy()
    values[2] = 500.0
    assert broken(loops.loop() | {"rollouts": loops.rollouts(**{name: values})})["INV-6"].rows == (2,)


def test_inv_6_trained_before_its_reward():
    values = loops.rollouts()["t_final_s"].to_numpy(zero_copy_only=False).copy()
    values[7] = 30.0
    late = loops.loop() | {"rollouts": loops.rollouts(t_final_s=values)}
    assert broken(late)["INV-6"].worst == 4.0
    assert broken(late, streams=True) == {}


def test_inv_6_steps_that_overlap():
    found = broken(loops.loop() | {"steps": loops.steps(t1_s=np.array([27.0, 37.0]))})["INV-6"]
    assert (found.table, found.worst) == ("steps", 1.0)


def test_inv_12_a_gpu_with_two_leases():
    one, other = Lease("rollout", 0, 3, 0.0, 10.0), Lease("train", 2, 2, 9.0, 40.0)
    found = broken(loops.loop(), leases=[one, other])["INV-12"]
    assert (found.worst, found.rows) == (1.0, (1,))
    after = Lease("train", 2, 2, 10.0, 40.0)
    assert broken(loops.loop(), leases=[one, after]) == {}
    assert "INV-12" in broken(loops.loop(), leases=[Lease("rollout", 3, 2, 0.0, 1.0)])


def test_an_empty_run():
    empty = {name: table.slice(0, 0) for name, table in loops.loop().items()}
    found = check(empty, gpus=4, span_s=0.0, hard_eta=0)
    assert all(finding.ok for finding in found)


def test_two_runs_are_the_same_or_not():
    assert same("INV-7", "same seed", loops.loop(), loops.loop()).ok
    other = loops.loop() | {"ledger": loops.ledger(pool="rollout")}
    found = same("INV-7", "same seed", loops.loop(), other)
    assert (found.ok, found.table) == (False, "ledger")
    assert not same("INV-7", "same seed", loops.loop(), {}).ok


def test_a_finding_says_what_it_found():
    found = broken(loops.loop(), hard_eta=0)["INV-4"]
    assert str(found) == (
        "INV-4 BROKEN: staleness at most 0, a hard bound; worst 1; 3 rows of rollouts, first [4, 6, 7]"
    )
    assert found.document()["rows"] == (4, 6, 7)

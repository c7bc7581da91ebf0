"""What a run prints, against the tiny loop whose numbers can be checked by head."""

import json

import pyarrow as pa
import pytest

from rollsim.simulator.run_document import HORIZON_STEPS, document, stored_document
from rollsim.simulator.run_report import text
from rollsim.simulator.shown import shown
from rollsim.traces.run import Run
from rollsim.traces.schema import build
from rollsim.traces.writer import write_run
from tests.traces import loops

BASIS = {
    "cluster": {"gpus": 4, "usd_per_gpu_hour": 9.0, "rollout_gpus": 2, "train_gpus": 2, "shared": False, "replicas": 2,
                "gpus_per_replica": 1},
    "profile": {"name": "p", "model": "m", "dtype": "bf16", "gpu": "H100", "tp": 1, "engine": "vllm 1", "source": "s",
                "cautions": ["careful"]},
    "limits": {},
    "workload": {"trace": "example:grpo", "law": None},
    "train": {"prompts_per_step": 2, "samples_per_prompt": 2, "mini_batches": 1, "epochs": 1},
    "policies": {"admission": [{"use": "staleness_quota", "eta": 1}, "fixed_batch"], "routing": "least_load"},
    "hard_eta": 1,
    "claims": [{"part": "decode", "grade": "fitted", "how": ""},
               {"part": "train step: mfu", "grade": "assumed", "how": ""}],
    "bias": {"low": 1.1, "median": 1.2, "high": 1.3, "n": 5, "match": "same", "origin": "somewhere"},
    "outside_range": ["KV read in a step: up to 2 tokens, fitted up to 1: extrapolated"],
    "notes": ["a note"],
}  # fmt: skip


def line_of(printed: str, start: str) -> str:
    return next(line for line in printed.splitlines() if line.startswith(start))


@pytest.fixture
def printed() -> str:
    return text(document(loops.loop(), BASIS))


def test_the_text_fits_80_columns_and_is_json_beside(printed):
    assert max(map(len, printed.splitlines())) <= 80
    json.dumps(document(loops.loop(), BASIS), allow_nan=False)


def test_step_time_and_its_parts(printed):
    assert line_of(printed, "wait for trajectories").split()[3:5] == ["10.00", "50.0%"]
    assert line_of(printed, "train  ").split()[1:3] == ["7.000", "35.0%"]
    assert line_of(printed, "weight sync").split()[2:4] == ["2.000", "10.0%"]
    assert line_of(printed, "a step").split()[2] == "20.00"
    assert "n = 2" in line_of(printed, "a step")
    assert "P95, P99 need more steps than 2" in printed


def test_tokens_wall_clock_and_cost(printed):
    assert line_of(printed, "trained (prompt and response), per GPU").split()[-1] == "0.7250"
    rows = document(loops.loop(), BASIS)["wall_clock"]
    assert [row["steps"] for row in rows] == [2, HORIZON_STEPS]
    assert [row["extrapolated"] for row in rows] == [False, True]
    assert rows[0]["usd"] == 40 * 4 * 9 / 3600
    assert rows[1]["seconds"] == 40 + 998 * 24
    assert "EXTRAPOLATED" in line_of(printed, "   1,000 steps")
    assert "EXTRAPOLATED" not in line_of(printed, "       2 steps")


def test_bubble_by_pool_and_cause_and_fate(printed):
    assert line_of(printed, "rollout pool, 80.00 GPU-s").split()[-3:-1] == ["16.00", "20.0%"]
    assert line_of(printed, "  starved: no batch").split()[-3:-1] == ["40.00", "50.0%"]
    assert line_of(printed, "discarded: stale").split()[2:4] == ["20.00", "35.7%"]
    assert line_of(printed, "all GPU time").split()[3] == "160.0"


def test_staleness_as_a_histogram(printed):
    zero, one = line_of(printed, "0 versions"), line_of(printed, "1 versions")
    assert zero.split()[2:4] == ["5", "62.5%"]
    assert zero.count("█") == 32
    assert one.count("█") == 19
    assert "Mean 0.3750, most 1" in printed


def test_a_long_histogram_is_cut_but_loses_nothing():
    age = document(loops.loop(), BASIS)["staleness"]
    bins = [{"versions": i, "trajectories": 1, "share": 1 / 20} for i in range(20)]
    printed = text(document(loops.loop(), BASIS) | {"staleness": age | {"bins": bins}})
    assert line_of(printed, "11 or more versions").split()[4:6] == ["9", "45.0%"]


def test_the_slowest_are_refused_for_few(printed):
    assert "Fewer than 100 trajectories ended: refused." in printed


def test_what_it_rests_on(printed):
    for words in (
        "fitted       decode",
        "assumed      train step: mfu",
        "OUTSIDE      KV read",
        "caution      careful",
    ):
        assert words in printed
    assert "1.10 to 1.30 x" in printed
    assert "staleness_quota(eta=1) + fixed_batch" in printed


def test_what_is_not_known_is_left_out():
    printed = text(document({"rollouts": loops.rollouts()}, None))
    assert "no train steps" in printed
    for section in ("BUBBLE", "FATE", "WALL-CLOCK", "RESTS ON"):
        assert section not in printed
    empty = text(document({"rollouts": build("rollouts", {"sample_id": pa.array([], pa.string())})}, None))
    assert "0 trajectories" in empty


def test_a_run_folder_says_the_same(tmp_path):
    made = json.loads(json.dumps(document(loops.loop(), BASIS)))
    write_run(tmp_path / "run", loops.loop(), {}, made, seed=3, wall_s=1.5)
    run = Run.open(tmp_path / "run")
    assert json.loads(json.dumps(stored_document(run))) == made
    assert shown(tmp_path / "run")[1]() == text(made, 1.5)
    assert "in 1.50 s" in text(made, 1.5)

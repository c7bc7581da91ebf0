"""`rollsim calibrate` on a real vLLM: the simulator takes the same steps, a profile predicts, nothing is lost."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rollsim.calibration.measured import open_measurement
from rollsim.calibration.measured_profile import fit_profile
from rollsim.calibration.validation import validate
from rollsim.cli.app import main
from rollsim.simulator.judge_report import judge
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.recording import read_recordings
from tests.calibration.vllm.timing import FACTOR_OF_TWO

pytestmark = pytest.mark.slow
LIMITS = ("--max-num-seqs", "8", "--max-num-batched-tokens", "256", "--max-model-len", "1024")


def measured(rollsim: list[str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*rollsim, "calibrate", "measure", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def until(folder: Path, count: int, process: subprocess.Popen[bytes]) -> dict[str, bytes]:
    """Wait until a measurement holds some recordings."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        files = list((folder / "recordings").glob("[!.]*.json"))
        if len(files) >= count:
            return {file.name: file.read_bytes() for file in files}
        time.sleep(0.1)
    raise AssertionError(f"{count} recordings have not come; exit code {process.poll()}")


@pytest.fixture(scope="module")
def killed_and_resumed(tmp_path_factory, tiny_model, vllm_rollsim):
    """Measure the tiny model: killed half-way, then run again to its end. Gives folder, document, what was there."""
    folder = tmp_path_factory.mktemp("measured") / "tiny"
    words = [str(tiny_model), "--out", str(folder), "--minutes", "0.1", *LIMITS]
    process = subprocess.Popen([*vllm_rollsim, "calibrate", "measure", *words], stderr=subprocess.DEVNULL)
    kept = until(folder, 4, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = measured(vllm_rollsim, *words, "--json")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout), kept


def test_the_simulator_takes_every_step_of_the_real_engine(killed_and_resumed):
    """Chunked prefill, preemption, prefix cache on and off, arrivals, aborts and resumes."""
    folder, document, _ = killed_and_resumed
    recordings = [
        recording for file in sorted((folder / "recordings").iterdir()) for recording in read_recordings(file)
    ]
    outcome = judge(recordings)
    assert [row for row in outcome["recordings"] if not row["equal"]] == []
    assert len(recordings) == document["planned"] == len(document["batches"])
    assert document["faults"] == []
    by_name = {recording.name.removesuffix(".json"): recording for recording in recordings}
    assert by_name["kv_full_groups"].preemptions > 0
    assert by_name["kv_full_no_cache"].preemptions > 0
    assert {recording.limits.prefix_caching for recording in recordings} == {True, False}
    assert any(result["cached_tokens"] for result in by_name["prefix_hits"].results.values())
    assert any(result["finish_reason"] == "abort" for result in by_name["aborts"].results.values())
    assert max(sum(chunks.values()) for chunks in by_name["prefill_chunks"].chunks) == 256


def test_what_was_measured_before_the_kill_is_kept(killed_and_resumed):
    folder, _, kept = killed_and_resumed
    for name, content in kept.items():
        before, after = json.loads(content), json.loads((folder / "recordings" / name).read_bytes())
        assert after["rows"] == before["rows"]
        assert after["repeats"][: len(before["repeats"])] == before["repeats"]


def test_every_step_has_its_times_and_the_engine_is_described(killed_and_resumed):
    folder, document, _ = killed_and_resumed
    assert document["engine"]["name"] == "vllm"
    assert document["engine"]["build"] == "cpu"
    assert document["clock"] == "cpu"
    assert document["model"]["layers"] == 4
    assert document["limits"]["max_num_seqs"] == 8
    assert document["limits"]["num_blocks"] > 0
    steps = pq.read_table(folder / "engine_steps.parquet").to_pydict()
    assert min(steps["wall_s"]) > 0
    # One thread computes; a background thread may add a little.
    assert sum(steps["cpu_s"]) < 1.2 * sum(steps["wall_s"])
    reference = next(batch for batch in document["batches"] if batch["role"] == "reference")
    assert reference["repeats"] >= 5


def test_what_is_not_a_step_is_timed_or_said_why_not(killed_and_resumed):
    extras = killed_and_resumed[1]["extras"]
    assert {name for name, timing in extras.items() if "not_timed" in timing} == {"sleep_wake"}
    assert extras["weight_reload"]["reload_s"] > 0
    assert extras["abort_resume"]["first_step_after_s"] > 0
    assert extras["speculation_ngram"]["draft_tokens"] > 0
    assert extras["speculation_ngram"]["steps"] < extras["speculation_off"]["steps"]


def test_the_real_asynchronous_scheduler_takes_simulated_steps_and_is_fitted(tmp_path, tiny_model, vllm_rollsim):
    """Two batches in flight: every step of every batch, preemption, aborts and prefix hits among them."""
    done = measured(
        vllm_rollsim, tiny_model, "--out", tmp_path / "m", "--minutes", "0.1", *LIMITS, "--async-scheduling", "--json"
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["engine"]["scheduling"] == "async"
    recordings = [
        recording for file in sorted((tmp_path / "m" / "recordings").iterdir()) for recording in read_recordings(file)
    ]
    assert all(recording.is_async for recording in recordings)
    assert [row["name"] for row in judge(recordings)["recordings"] if not row["equal"]] == []
    assert any(recording.preemptions for recording in recordings)
    steps = pq.read_table(tmp_path / "m" / "engine_steps.parquet")
    assert steps["tokens"].null_count == 0
    assert steps["kv_tokens"].null_count == len(steps)
    made = fit_profile(open_measurement(tmp_path / "m"))
    assert made.scheduling == "async"
    assert made.costs.host_s > 0
    outcome = validate(open_measurement(tmp_path / "m"), made, tolerance=FACTOR_OF_TWO)
    assert outcome["passed"] is not False


@pytest.fixture(scope="module")
def measured_smollm2(tmp_path_factory, smollm2, vllm_rollsim):
    """Measure the real small model, of 135 M parameters; four slots keep it short. Gives folder and document."""
    folder = tmp_path_factory.mktemp("measured") / "smollm2"
    done = measured(
        vllm_rollsim, smollm2, "--out", folder, "--minutes", "0.1", "--json", "--max-num-seqs", "4",
        "--max-model-len", "512", "--max-num-batched-tokens", "128", "--kv-cache-memory-bytes", str(1 << 28),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_the_real_small_model_takes_the_simulated_steps_too(measured_smollm2):
    folder, document = measured_smollm2
    assert document["model"]["parameters"] == 134_515_008
    recordings = [
        recording for file in sorted((folder / "recordings").iterdir()) for recording in read_recordings(file)
    ]
    assert [row["name"] for row in judge(recordings)["recordings"] if not row["equal"]] == []


def test_a_profile_fitted_to_the_real_small_model_predicts_batches_that_it_has_not_seen(measured_smollm2, capsys):
    """By the clock of the CPU."""
    folder, _ = measured_smollm2
    profile = folder.parent / "smollm2.json"
    for words in (
        ["fit", folder, "--out", profile],
        ["validate", folder, "--profile", profile, "--tolerance", FACTOR_OF_TWO],
    ):
        with pytest.raises(SystemExit) as end:
            main(["calibrate", *map(str, words), "--json"])
        out, err = capsys.readouterr()
        assert end.value.code == 0, out + err
    document = json.loads(out)
    assert document["passed"] is not False
    assert document["r2"] > 0.5
    assert {row["name"] for row in document["batches"]} >= {"held_out_kv_full", "held_out_groups"}
    assert load_profile(str(profile)).model.layers == 30


def test_an_engine_that_is_killed_is_told_in_a_line_and_what_was_measured_kept(tmp_path, tiny_model, vllm_rollsim):
    folder = tmp_path / "m"
    process = subprocess.Popen(
        [*vllm_rollsim, "calibrate", "measure", str(tiny_model), "--out", str(folder), "--minutes", "0.1", *LIMITS],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    kept = until(folder, 1, process)
    (worker,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(worker), signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "was killed, as a machine does that is out of memory" in said
    assert "the same command goes on" in said
    assert "Traceback" not in said
    assert {file.name for file in (folder / "recordings").iterdir()} >= kept.keys()


@pytest.mark.parametrize("kind", ["longer than the model", "no memory", "no weights"])
def test_what_the_engine_refuses_is_bad_input(tmp_path, tiny_model, vllm_rollsim, kind):
    model, words = tiny_model, ["--max-model-len", "9999"]
    if kind == "no memory":
        words = ["--kv-cache-memory-bytes", "1000"]
    elif kind == "no weights":
        model, words = tmp_path / "model", []
        model.mkdir()
        (model / "config.json").write_bytes((tiny_model / "config.json").read_bytes())
    done = measured(vllm_rollsim, model, "--out", tmp_path / "m", *words)
    assert done.returncode == 2
    first, fault = done.stderr.splitlines()
    assert first == "bad input, 1 fault:"
    assert "vLLM cannot open it" in fault

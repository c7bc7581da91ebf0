"""Step metrics of each framework, from small logs made by hand: which column they become, and what is converted."""

import csv
import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rollsim.traces.errors import BadInput
from rollsim.traces.importers.log import read_log
from rollsim.traces.metric_names import METRIC_NAMES, likeliest, meanings
from rollsim.traces.step_kpis import step_kpis, wall_clock

VERL = {
    "timing_s/step": 20.0, "timing_s/gen": 10.0, "timing_s/old_log_prob": 2.0, "timing_s/ref": 1.0,
    "timing_s/update_actor": 6.0, "response_length/mean": 30.0, "response_length/max": 64.0,
    "response_length/clip_ratio": 0.25, "prompt_length/mean": 10.0, "perf/total_num_tokens": 320,
    "perf/throughput": 4.0, "critic/score/mean": 0.5,
}  # fmt: skip


def jsonl(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def column(log, name: str) -> list[float | None]:
    return log.steps[name].to_pylist()


def test_verl_file_logger_by_hand(tmp_path):
    """320 tokens at 40 a trajectory are 8 trajectories; 320 tokens in 20 s at 4 a GPU-second are 4 GPUs."""
    second = VERL | {"timing_s/step": 30.0, "timing_s/gen": 20.0, "perf/throughput": 320 / 120}
    log = read_log(jsonl(tmp_path / "run.jsonl", [{"step": 1, "data": VERL}, {"step": 2, "data": second}]))
    assert (log.framework, log.faults) == ("verl", ())
    assert column(log, "ended_s") == [20.0, 50.0]
    assert column(log, "logprob_s") == [3.0, 3.0]
    assert column(log, "trajectories") == [8, 8]
    assert column(log, "prompt_tokens") == [80, 80]
    assert column(log, "output_tokens") == [240, 240]
    assert column(log, "gpus") == [4.0, 4.0]
    assert log.facts == {"max_output_tokens": 64.0}
    assert log.series("timing_s/gen").tolist() == [10.0, 20.0]
    assert np.isnan(log.series("no/such")).all()


def test_verl_clips_of_padded_batches_are_no_truncations(tmp_path):
    rows = [VERL | {"response_length/max": longest} for longest in (50.0, 64.0)]
    log = read_log(jsonl(tmp_path / "run.jsonl", [{"step": i, "data": row} for i, row in enumerate(rows)]))
    assert column(log, "truncated_share") == [None, 0.25]
    assert any("padded to its longest" in line for line in log.derived)


def test_verl_console_is_the_same_log(tmp_path):
    """With colours, Ray's prefix, numpy's way to print, and a validation before training."""
    printed = " - ".join(f"{name}:np.float64({value})" for name, value in VERL.items())
    text = f"Started\n\x1b[36m(TaskRunner pid=7)\x1b[0m step:0 - val-core/gsm8k:0.1\nstep:1 - {printed}\n"
    (tmp_path / "train.log").write_text(text)
    log = read_log(tmp_path / "train.log")
    file = read_log(jsonl(tmp_path / "run.jsonl", [{"step": 1, "data": VERL}]))
    assert log.faults == ()
    assert log.steps.equals(file.steps)
    assert len(log.metrics) == len(VERL) + 1
    assert any("step 0" in line for line in log.derived)
    assert "console output is not read" in " ".join(read_log(tmp_path).found)


def test_openrlhf_prints_and_tracks(tmp_path):
    """Synchronous, the step is the sum of its phases; asynchronous, it waited for what they do not fill: 10 - 4 - 1."""
    row = {"timing/step_total": 10.0, "timing/generation": 5.0, "timing/ppo_train": 4.0, "timing/broadcast": 1.0}
    (tmp_path / "sync.log").write_text(f"I Global step 3: {row}\n")
    log = read_log(tmp_path / "sync.log")
    assert (log.framework, column(log, "step"), column(log, "generate_s")) == ("openrlhf", [3], [5.0])
    tracked = {"_step": 9, "train/global_step": 3} | {f"train/{name}": value for name, value in row.items()}
    log = read_log(jsonl(tmp_path / "history.jsonl", [tracked | {"train/timing/generation": 9.0}]))
    assert (log.framework, column(log, "step")) == ("openrlhf", [3])
    assert (column(log, "generate_s"), column(log, "train_s")) == ([5.0], [4.0])


def test_slime_joins_what_it_prints_of_a_step(tmp_path):
    """The trainer waited 12 s, 2 of them for the weights, and the rollout took 9."""
    (tmp_path / "out.log").write_text(
        "perf 0: {'perf/rollout_time': 9.0, 'rollout/response_len/mean': 100.0}\n"
        "rollout 0: {'rollout/truncated_ratio': np.float64(0.5), 'rollout/raw_reward': tensor(0.25)}\n"
        "perf 0: {'perf/step_time': 20.0, 'perf/train_wait_time': 12.0, 'perf/update_weights_time': 2.0}\n"
    )
    log = read_log(tmp_path)
    assert (log.framework, log.faults) == ("slime", ())
    wanted = {"generate_s": 9.0, "weight_sync_s": 2.0, "ended_s": 20.0, "truncated_share": 0.5, "reward_mean": 0.25}
    assert {name: column(log, name) for name in wanted} == {name: [value] for name, value in wanted.items()}


def test_prime_rl_metrics_have_a_clock(tmp_path):
    """Records of trainer and orchestrator are joined; two environments have no mean of one."""
    rows = [
        {"step": 0, "time": 100.5, "time/step": 8.0, "off_policy/max": 2},
        {"step": 0, "time": 101.5, "train/math/effective/num_output_tokens/mean": 50.0},
        {"step": 1, "time": 111.5, "time/step": 9.0, "train/math/all/num_output_tokens/mean": 60.0},
        {"step": 2, "time": 121.5, "train/a/all/is_truncated/mean": 0.1, "train/b/all/is_truncated/mean": 0.3},
    ]
    log = read_log(jsonl(tmp_path / "metrics.jsonl", rows))
    assert (log.framework, log.faults) == ("prime-rl", ())
    assert column(log, "response_tokens_mean") == [50.0, 60.0]
    assert column(log, "ended_s") == [8.0, 19.0]
    assert column(log, "staleness_max") == [2, None]


def test_samples_of_engines_end_no_step(tmp_path):
    """What was polled after a step has its number, or none; the step ended when its time was written."""
    rows = [
        {"step": i, "time": 100.0 + 10 * i + late, **values}
        for i in (0, 1)
        for late, values in ((0, {"time/step": 8.0}), (9, {"inference/agg/running": 3.0}))
    ]
    log = read_log(
        jsonl(tmp_path / "metrics.jsonl", [*rows, {"step": None, "time": 130.0, "inference/agg/running": 1.0}])
    )
    assert (column(log, "ended_s"), log.faults) == ([8.0, 18.0], ())
    assert any("1 records" in line for line in log.found)


def test_nemo_rl_counts_gpus_and_trajectories(tmp_path):
    """2 trajectories of 10 + 30 tokens; 80 tokens in 8 s at 2.5 a GPU-second are 4 GPUs. With tools: no count."""
    row = {
        "_step": 1, "timing/train/total_step_time": 8.0, "train/total_num_tokens": 80.0,
        "train/mean_prompt_length": 10.0, "train/mean_gen_tokens_per_sample": 30.0,
        "performance/tokens_per_sec_per_gpu": 2.5,
    }  # fmt: skip
    log = read_log(jsonl(tmp_path / "history.jsonl", [row]))
    assert [column(log, name) for name in ("gpus", "trajectories", "output_tokens")] == [[4.0], [2], [60]]
    log = read_log(jsonl(tmp_path / "history.jsonl", [row | {"train/mean_gen_tokens_per_sample": 21.0}]))
    assert column(log, "trajectories") == [None]


def test_trl_reads_the_last_checkpoint(tmp_path):
    rows = [{"step": 5, "step_time": 3.0, "completions/mean_length": 40.0, "completions/clipped_ratio": 0.5}]
    for number in (9, 10):
        folder = tmp_path / f"checkpoint-{number}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": rows}, indent=2))
        rows = [*rows, {"step": 10, "step_time": 4.0}, {"step": 10, "train_runtime": 9.0}]
    log = read_log(tmp_path)
    assert (log.framework, column(log, "step"), column(log, "ended_s")) == ("trl", [5, 10], [3.0, 7.0])
    assert column(log, "truncated_share") == [0.5, None]


def test_histories_of_trackers(tmp_path):
    """CSV, Parquet and names to steps to values; the names say whose they are."""
    nemo = {"timing/train/total_step_time": 7.0, "train/mean_gen_tokens_per_sample": 30.0}
    (tmp_path / "metrics.json").write_text(json.dumps({name: {"4": value} for name, value in nemo.items()}))
    skyrl = {"trainer/global_step": [2], "timing/step": [6.0], "generate/avg_num_tokens": [20.0]}
    pq.write_table(pa.table(skyrl), tmp_path / "history.parquet")
    (tmp_path / "history.csv").write_text("_step,_timestamp,timeperf/rollout,timeperf/train_step\n1,5.0,3.0,2.0\n")
    logs = {name: read_log(tmp_path / name) for name in ("metrics.json", "history.parquet", "history.csv")}
    assert [log.framework for log in logs.values()] == ["nemo-rl", "skyrl", "areal"]
    assert [column(log, "step") for log in logs.values()] == [[4], [2], [1]]
    with pytest.raises(BadInput, match="logs of several"):
        read_log(tmp_path)
    assert read_log(tmp_path, "skyrl").framework == "skyrl"


def test_validation_after_the_step(tmp_path):
    """verl's newer trainer validates after the step's own time, as SkyRL does; its older one within it."""
    within = VERL | {"timing_s/testing": 0.5}
    after = VERL | {"timing_s/testing": 9.0}
    for row, end_s in ((within, 20.0), (after, 29.0)):
        assert column(read_log(jsonl(tmp_path / "run.jsonl", [{"step": 1, "data": row}])), "ended_s") == [end_s]
    row = {"trainer/global_step": 1, "timing/step": 5.0, "timing/eval": 2.0, "timing/sync_weights": 1.0}
    log = read_log(jsonl(tmp_path / "history.jsonl", [row]))
    assert (log.framework, column(log, "ended_s"), column(log, "validation_s")) == ("skyrl", [7.0], [2.0])


def test_areal_sequences_are_prompt_and_response(tmp_path):
    row = {"_step": 1, "timeperf/rollout": 3.0, "ppo_actor/seq_len/avg": 50.0, "ppo_actor/prompt_len/avg": 20.0}
    log = read_log(jsonl(tmp_path / "history.jsonl", [row]))
    assert (log.framework, column(log, "response_tokens_mean"), column(log, "prompt_tokens_mean")) == (
        "areal", [30.0], [20.0],
    )  # fmt: skip


def event(step: int, tag: str, value: float, wall_s: float) -> bytes:
    """A record of TensorBoard, packed by hand; checksums are not looked at."""
    name = tag.encode()
    entry = b"\x0a" + bytes([len(name)]) + name + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(entry)]) + entry
    data = b"\x09" + struct.pack("<d", wall_s) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary
    return struct.pack("<Q", len(data)) + b"1234" + data + b"5678"


def test_tensorboard_events(tmp_path):
    """Whose tags they are is found out; a record that is cut off ends the file, counted."""
    tags = (("train/timing/step_total", 8.0), ("train/timing/generation", 4.0))
    records = [event(step, tag, value, 100.0 + 10 * step) for step in (1, 2) for tag, value in tags]
    file = tmp_path / "events.out.tfevents.1.host"
    file.write_bytes(b"".join(records))
    log = read_log(tmp_path)
    assert (log.framework, log.faults) == ("openrlhf", ())
    assert (column(log, "generate_s"), column(log, "ended_s")) == ([4.0, 4.0], [8.0, 18.0])
    file.write_bytes(b"".join(records)[:-3])
    log = read_log(tmp_path)
    assert column(log, "generate_s") == [4.0, None]
    assert [fault.message for fault in log.faults] == ["events end within a record; what comes after is left out"]


def test_clocks_that_cannot_be(tmp_path):
    """A clock that goes back, or on by less than the step took, is not used; the steps are laid end to end."""
    for ends_s in ((20.0, 10.0), (20.0, 21.0)):
        rows = [{"step": i, "time": time, "time/step": 5.0} for i, time in enumerate(ends_s)]
        log = read_log(jsonl(tmp_path / "metrics.jsonl", rows))
        assert column(log, "ended_s") == [5.0, 10.0]
        assert len(log.faults) == 1
        assert "clock" in log.faults[0].message


def test_a_clock_without_step_times(tmp_path):
    """How long the first step took is not known, and no step of 0 s is made of it."""
    rows = [{"_step": i, "_timestamp": 100.0 + 10 * i, "timeperf/rollout": 3.0} for i in range(3)]
    numbers = step_kpis(read_log(jsonl(tmp_path / "history.jsonl", rows)).tables)
    assert (numbers.step_s.n, numbers.step_s.mean, numbers.span_s) == (2, 10.0, 20.0)


def test_a_folder_without_a_log_says_what_was_looked_for(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing\n")
    with pytest.raises(BadInput) as caught:
        read_log(tmp_path)
    assert "notes.txt" in str(caught.value)
    assert "looked for trl: allowed: trainer_state.json of a checkpoint" in str(caught.value)
    with pytest.raises(BadInput, match="did you mean 'verl'"):
        read_log(tmp_path, "verll")


def test_damage_is_counted(tmp_path):
    """A cut line, no object, no data, no step, NaN, a negative time, a step twice, bytes that are not UTF-8."""
    good = json.dumps({"step": 1, "data": VERL})
    nan = json.dumps({"step": 2, "data": VERL | {"timing_s/gen": float("nan"), "timing_s/ref": -4.0}})
    other = good.replace("10.0", "11.0")
    lines = [good, "[]", '{"step": 3}', '{"step": -1, "data": {}}', nan, other, good[:-9]]
    (tmp_path / "run.jsonl").write_bytes("\n".join(lines).encode().replace(b"mean", b"me\xff", 1))
    log = read_log(tmp_path)
    kinds = {fault.message.split(":")[0]: fault for fault in log.faults}
    assert log.fault_count == 8
    for what in (
        "the last line is cut off", "a line is not a JSON object", "a record without data",
        "a record without a step", "a metric is not finite", "a step was logged again", "not UTF-8",
        "logprob_s is impossible",
    ):  # fmt: skip
        assert any(what in kind for kind in kinds), (what, kinds)
    assert kinds["the last line is cut off, and is left out"].place == "run.jsonl line 7"
    assert column(log, "generate_s") == [11.0, None]


def test_every_name_is_of_one_framework_or_agrees():
    """Names tell whose a log is."""
    assert meanings("verl", {"timing_s/ref": 1.0, "timing_s/values": 2.0}) == {"logprob_s": 3.0}
    assert likeliest(VERL) == "verl"
    assert likeliest(["loss"]) is None
    for framework in {name for names in METRIC_NAMES.values() for name in names}:
        own = [
            name
            for names in METRIC_NAMES.values()
            for name in names.get(framework, "").replace(" | ", " + ").replace("*", "env").split(" + ")
            if name
        ]
        assert likeliest(own) == framework


def test_published_verl_logs(shared_data, tmp_path):
    """Of 1,291 real steps, no value is refused; counts and GPUs are whole numbers that agree with the logged rates."""
    with gzip.open(shared_data / "rl_steps/verl_log_steps.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    steps = 0
    for run in dict.fromkeys(row["log"] for row in rows):
        path = jsonl(
            tmp_path / "run.jsonl",
            [
                {"step": int(row["step"]), "data": {name: float(row[name]) for name in list(row)[2:] if row[name]}}
                for row in rows
                if row["log"] == run
            ],
        )
        log = read_log(path)
        assert log.faults == ()
        steps += len(log.steps)
        total_s = log.steps["ended_s"][-1].as_py()
        parts = ("generate_s", "reward_s", "logprob_s", "train_s", "validation_s", "checkpoint_s")
        known_s = sum(sum(filter(None, column(log, name))) for name in parts)
        assert 0.99 * total_s < known_s <= total_s * (1 + 1e-9)
        if log.steps["gpus"].null_count == 0:
            assert set(column(log, "gpus")) == {8.0}
            assert set(column(log, "trajectories")) == {5120}
            tokens = log.steps["prompt_tokens"].to_numpy() + log.steps["output_tokens"].to_numpy()
            assert np.array_equal(tokens, log.series("perf/total_num_tokens"))
    assert steps == 1291


def test_kpis_of_a_log_are_what_it_logged(tmp_path):
    """verl's `perf/throughput` is tokens trained per GPU-second; the parts add up to the step."""
    log = read_log(jsonl(tmp_path / "run.jsonl", [{"step": i, "data": VERL} for i in range(3)]))
    numbers = step_kpis(log.tables)
    assert numbers.trained_tokens_per_gpu_s == pytest.approx(VERL["perf/throughput"])
    assert (numbers.step_s.mean, numbers.gpus, numbers.span_s) == (20.0, 4.0, 60.0)
    assert numbers.parts_s == {"generate_s": 10.0, "logprob_s": 3.0, "train_s": 6.0, "other_s": 1.0}


def test_kpis_of_a_log_without_times(tmp_path):
    log = read_log(jsonl(tmp_path / "run.jsonl", [{"step": 0, "data": {"response_length/mean": 3.0}}]))
    numbers = step_kpis(log.tables)
    assert (numbers.steps, numbers.span_s, numbers.step_s.mean, numbers.parts_s) == (1, None, None, {})
    assert wall_clock(log.steps, 10) is None

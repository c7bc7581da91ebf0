"""`rollsim replay` as a user sees it."""

import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from rollsim.cli.app import main
from rollsim.traces.kpis import kpis
from rollsim.traces.run import Run
from tests.golden import ARCHIVE

PROFILE = "qwen3-8b-h100-tp1-bf16"
GOLDEN = "03_kv_starved.json"


@pytest.fixture
def rollsim(capsys):
    """Run the command line in this process: (exit code, stdout, stderr)."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([*map(str, words)])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


@pytest.fixture
def trace(tmp_path) -> Path:
    """Thirty requests in groups of three, some under KV pressure at a small pool."""
    rows = [f"{g},{100 + g},{40 + 37 * (3 * g + i) % 300}" for g in range(10) for i in range(3)]
    path = tmp_path / "t.csv"
    path.write_text("group_id,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    return path


def extract(folder: Path, name: str = GOLDEN) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        file = archive.extractfile(next(m for m in archive.getmembers() if m.name.endswith(name)))
        assert file is not None
        (folder / name).write_bytes(file.read())
    return folder / name


@pytest.mark.parametrize("example", ["grpo", "online"])
def test_the_text_fits_80_columns_and_tells_all_that_was_asked(rollsim, example):
    code, out, _ = rollsim("replay", f"example:{example}", "--profile", PROFILE, "--replicas", 2)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for word in (
        "makespan", "output tokens per s", "preemptions", "tokens recomputed", "OVER TIME", "TAIL", "GPU TIME", "P50",
        "P95", "P99", "fast", "median", "slow", "WHAT THIS RESTS ON", "extrapolated", "fitted", "measured points",
    ):  # fmt: skip
        assert word in out, word


def test_json_holds_the_same_numbers_as_the_tables(rollsim, tmp_path, trace):
    words = ("replay", trace, "--profile", PROFILE, "--replicas", 2, "--num-gpu-blocks-override", 60,
             "--max-model-len", 900)  # fmt: skip
    code, out, err = rollsim(*words, "--out", tmp_path / "run", "--json", "--quiet")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert set(document) == {
        "format", "schema_version", "trace", "profile", "engine", "kpis", "timeline", "bias", "outside_range", "claims",
        "steps", "events",
    }  # fmt: skip
    run = Run.open(tmp_path / "run")
    tables = {name: run.table(name) for name in ("rollouts", "gauges", "ledger")}
    assert json.loads(json.dumps(kpis(tables).document())) == document["kpis"]
    assert run.summary == document
    assert run.config["limits"] == document["engine"]["limits"]
    assert set(run.manifest["inputs"]) == {str(trace), PROFILE}
    assert document["kpis"]["makespan_s"] == max(tables["rollouts"]["t_end_s"].to_pylist())
    assert document["kpis"]["preemptions"] > 0
    assert document["engine"]["limits"]["num_blocks"] == 59
    assert document["kpis"]["gpu_s"] == pytest.approx(2 * document["kpis"]["makespan_s"], rel=1e-9)
    assert rollsim(*words, "--json", "--quiet")[1] == out


def test_the_bias_band_is_applied_to_the_answer(rollsim, trace):
    """All at time 0: times scale. With arrivals the makespan moves less than the times of the steps do."""
    batch = json.loads(rollsim("replay", trace, "--profile", PROFILE, "--json")[1])
    band = batch["bias"]
    for name in ("low", "median", "high"):
        assert band["makespan_s"][name] == pytest.approx(batch["kpis"]["makespan_s"] * band[name])
    online = json.loads(rollsim("replay", "example:online", "--profile", PROFILE, "--json")[1])
    band, makespan_s = online["bias"], online["kpis"]["makespan_s"]
    assert makespan_s < band["makespan_s"]["median"] < makespan_s * band["median"]


def test_a_trace_that_begins_late_gives_the_same_answer(rollsim, tmp_path):
    """Time before the first arrival is nobody's: not the ledger's, not the timeline's, not the band's."""
    documents = []
    for delay_s in (0, 1_000):
        rows = [f"{delay_s + i / 4},{100 + i},{40 + 37 * i % 300}" for i in range(60)]
        (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
        documents.append(json.loads(rollsim("replay", tmp_path / "t.csv", "--profile", PROFILE, "--json")[1]))
    early, late = documents
    for numbers in (early["kpis"]["ledger"], late["kpis"]["ledger"]):
        numbers.sort(key=lambda row: (row["category"], row["cause"] or ""))
    for one, other in zip(early["kpis"]["ledger"], late["kpis"]["ledger"], strict=True):
        assert one["gpu_s"] == pytest.approx(other["gpu_s"], abs=1e-6)
    assert early["kpis"]["output_tokens_per_gpu_s"] == pytest.approx(late["kpis"]["output_tokens_per_gpu_s"])
    for name in ("low", "median", "high"):
        assert early["bias"]["makespan_s"][name] == pytest.approx(late["bias"]["makespan_s"][name])
    assert (late["timeline"][0]["t0_s"], late["trace"]["first_arrival_s"]) == (1_000, 1_000)
    assert [part["running"] for part in early["timeline"]] == pytest.approx(
        [part["running"] for part in late["timeline"]], abs=1e-3
    )
    out = rollsim("replay", tmp_path / "t.csv", "--profile", PROFILE)[1]
    assert "arriving 1,000 to 1,015 s" in " ".join(out.split())


def test_columns_that_are_not_used_are_named_on_stderr_and_in_json(rollsim, trace):
    lines = trace.read_text().splitlines()
    trace.write_text("\n".join([f"{lines[0]},model,temperature", *(f"{line},m,1" for line in lines[1:])]) + "\n")
    code, out, err = rollsim("replay", trace, "--profile", PROFILE)
    assert code == 0
    assert err == f"{trace}: 2 columns not used: model, temperature\n"
    out, err = rollsim("replay", trace, "--profile", PROFILE, "--json")[1:]
    assert json.loads(out)["trace"]["unused_columns"] == ["model", "temperature"]
    assert "2 columns not used" in err


def test_preemptions_are_told_of_all_requests(rollsim, trace):
    out = " ".join(rollsim("replay", trace, "--profile", PROFILE)[1].split())
    assert "preemptions 0 in 0 of 30 requests" in out
    few = ("--num-gpu-blocks-override", 60, "--max-model-len", 900)
    out = " ".join(rollsim("replay", trace, "--profile", PROFILE, *few)[1].split())
    assert re.search(r"preemptions [1-9]\d* in [1-9]\d* of 30 requests", out)


def test_what_lies_outside_the_fitted_range_is_said(rollsim, trace):
    inside = json.loads(rollsim("replay", trace, "--profile", PROFILE, "--json")[1])
    assert inside["outside_range"] == []
    text = rollsim("replay", "example:grpo", "--profile", PROFILE)[1]
    assert "OUTSIDE      KV read in a step" in text


def test_replicas_without_a_group_are_said(rollsim, trace):
    out = rollsim("replay", trace, "--profile", PROFILE, "--replicas", 12)[1]
    assert "2 replicas had nothing to do" in out
    assert "no request was dealt to the replica" in out


def test_a_percentile_of_too_few_requests_is_refused(rollsim, trace):
    out = rollsim("replay", trace, "--profile", PROFILE)[1]
    assert "n too small" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["TRACE", "--profile", "qwen3-8b-h100-tp1-bf61"], "did you mean 'qwen3-8b-h100-tp1-bf16'?"),
        (["TRACE", "--profile", PROFILE, "--replicas", "-1"], "--replicas: out of range"),
        (["TRACE", "--profile", PROFILE, "--num-gpu-blocks-override", "20"], "set --max-model-len up to 304"),
        (["TRACE", "--profile", PROFILE, "--max-num-batched-tokens", "9", "--max-num-seqs", "10"], "max_num_seqs = 10"),
        (["TRACE", "--profile", PROFILE, "--scheduling-policy", "fifo"], "allowed: fcfs, priority"),
        (["TRACE", "--profile", PROFILE, "--max-model-len", "200"], "line 2: needs"),
        (["TRACE", "--profile", PROFILE, "--out", "HERE"], "folder with other things in it"),
        (["TRACE", "TRACE", "--profile", PROFILE], "TRACE: 2 given"),
        (["TRACE"], "--profile: missing"),
        (["--profile", PROFILE], "TRACE: missing"),
        (["example:gpro", "--profile", PROFILE], "did you mean 'grpo'?"),
        (["nowhere.csv", "--profile", PROFILE], "nowhere.csv"),
        (["--recording"], "--recording: no file given"),
        (["TRACE", "--recording"], "a TRACE and --recording cannot go together"),
        (["GOLDEN", "--recording", "--profile", PROFILE], "--profile: cannot go with --recording"),
        (["GOLDEN", "--recording", "--max-num-seqs", "5", "--out", "x"], "--max-num-seqs: cannot go with --recording"),
        (["--recording", "nowhere.json"], "nowhere.json"),
    ],
)  # fmt: skip
def test_bad_input_is_named_and_exits_2(rollsim, trace, tmp_path, words, told):
    if told.startswith("line 2: needs"):
        told = "prompt"
        trace.write_text("prompt_tokens,output_tokens\n200,5\n")
    places = {"TRACE": trace, "GOLDEN": extract(tmp_path), "HERE": tmp_path}
    code, out, err = rollsim("replay", *(places.get(word, word) for word in words))
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err


def test_faults_of_all_inputs_come_at_once(rollsim, tmp_path):
    (tmp_path / "t.csv").write_text("prompt_tokens,output_tokens\n0,1\n")
    code, _, err = rollsim(
        "replay", tmp_path / "t.csv", "--profile", "nope", "--replicas", 0, "--out", tmp_path, "--json"
    )
    faults = json.loads(err)["faults"]
    assert code == 2
    assert [fault["file"] for fault in faults] == ["--replicas", str(tmp_path / "t.csv"), "--profile", str(tmp_path)]


def test_all_recordings_are_equal_in_every_step(rollsim):
    code, out, _ = rollsim("replay", "--recording", ARCHIVE)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "33 of 33 recordings equal in every step" in out


def test_a_recording_that_was_changed_differs_with_both_sides(rollsim, tmp_path):
    path = extract(tmp_path)
    document = json.loads(path.read_text())
    column = document["columns"].index("blocks_used")
    document["rows"][100][column] += 1
    path.write_text(json.dumps(document))
    code, out, _ = rollsim("replay", "--recording", path)
    assert code == 3
    assert "DIFFERS" in out
    assert "first 100 steps equal; step 100 (from 0)" in out
    code, out, _ = rollsim("replay", path, "--recording", "--json")
    (row,) = json.loads(out)["recordings"]
    assert code == 3
    assert (row["equal_steps"], row["difference"]["step"]) == (100, 100)
    recorded, simulated = row["difference"]["columns"]["blocks_used"]
    assert recorded == simulated + 1


def test_a_broken_recording_is_bad_input(rollsim, tmp_path):
    path = extract(tmp_path)
    path.write_text(path.read_text()[:1000])
    code, out, err = rollsim("replay", "--recording", path)
    assert (code, out) == (2, "")
    assert GOLDEN in err


def test_several_files_and_archives_go_together(rollsim, tmp_path):
    path = extract(tmp_path)
    with tarfile.open(tmp_path / "one.tar.gz", "w:gz") as archive:
        content = path.read_bytes()
        info = tarfile.TarInfo("inside.json")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    code, out, _ = rollsim("replay", "--recording", path, tmp_path / "one.tar.gz", "--json", "--quiet")
    assert code == 0
    assert [row["name"] for row in json.loads(out)["recordings"]] == [GOLDEN, "inside.json"]

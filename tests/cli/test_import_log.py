"""`rollsim import` as a user sees it."""

import json

import pytest

from rollsim.cli.app import main
from rollsim.traces.run import Run
from tests.traces.importers import samples

ROW = {"prompt_tokens": 10, "output_tokens": 20, "arrival_s": 0.0, "group_id": 1}


@pytest.fixture
def rollsim(capsys):
    """Run the command line in this process: (exit code, stdout, stderr)."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([*map(str, words)])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


def without_time(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("Imported in")]


@pytest.mark.parametrize("name", samples.LOGS)
def test_each_log_is_imported_and_shown_again(rollsim, tmp_path, name):
    folder = samples.LOGS[name](tmp_path / "log")
    code, out, err = rollsim("import", "auto", folder, "--out", tmp_path / "run", "--allow-pickle", "--quiet")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "MISSING, and what would provide it" in out
    assert "predicted" not in out
    code, shown, err = rollsim("show", tmp_path / "run")
    assert (code, err) == (0, "")
    assert without_time(shown) == without_time(out)


def test_the_document(rollsim, tmp_path):
    samples.prime_rl(tmp_path / "log")
    code, out, _ = rollsim("import", tmp_path / "log", "--json")
    document = json.loads(out)
    assert (code, document["format"], document["log"]["framework"]) == (0, "rollsim-log-summary", "prime-rl")
    assert document["staleness"]["mean"] == 2.0
    assert document["log"]["missing"][0] == {
        "what": "the engine of each trajectory", "setting": "no setting writes it",
    }  # fmt: skip


def test_steps_alone_are_shown(rollsim, tmp_path):
    log = samples.jsonl(tmp_path / "run.jsonl", [{"step": n, "data": {"timing_s/step": 9.0}} for n in range(3)])
    code, out, _ = rollsim("import", "verl", log, "--out", tmp_path / "run")
    assert code == 0
    assert "STEP TIME, logged" in out
    assert "TRAJECTORIES" not in out
    assert Run.open(tmp_path / "run").tables == ["rollouts", "steps", "metrics"]
    assert rollsim("show", tmp_path / "run")[0] == 0
    code, out, _ = rollsim("compare", tmp_path / "run", tmp_path / "run")
    assert code == 0
    assert "B AGAINST A, logged" in out


def test_strict_refuses_damage(rollsim, tmp_path):
    log = samples.jsonl(tmp_path / "t.jsonl", [ROW, ROW | {"output_tokens": -1}])
    code, out, _ = rollsim("import", log)
    assert code == 0
    assert "DAMAGED: 1 fault" in out
    assert "- t.jsonl line 2: output_tokens is out of range; the value is not used" in out
    assert rollsim("import", log, "--strict")[0] == 2
    log.write_text(json.dumps(ROW) + "\n")
    code, out, _ = rollsim("import", log, "--strict")
    assert code == 0
    assert "Nothing was damaged." in out


def test_an_imported_trace_is_replayed(rollsim, tmp_path):
    samples.jsonl(tmp_path / "t.jsonl", [ROW | {"arrival_s": i / 10} for i in range(20)])
    assert rollsim("import", "table", tmp_path / "t.jsonl", "--out", tmp_path / "run")[0] == 0
    code, out, _ = rollsim("replay", tmp_path / "run", "--profile", "qwen3-8b-h100-tp1-bf16", "--json", "--quiet")
    trace = json.loads(out)["trace"]
    assert (code, trace["requests"], trace["groups"], trace["output_tokens"]) == (0, 20, 1, 400)


def test_bad_input(rollsim, tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    for words, wanted in (
        (("import", tmp_path / "t.csv"), "looked for guidellm"),
        (("import", "verll", tmp_path / "t.csv"), "did you mean 'verl'"),
        (("import", tmp_path / "absent"), "no such file or folder"),
        (("import", "a", "b", "c"), "[SOURCE] PATH"),
        (("import", tmp_path / "t.csv", "--columns", "prompt_token=a"), "did you mean 'prompt_tokens'"),
        (("import", tmp_path / "t.csv", "--columns", "a"), "OURS=THEIRS"),
        (("import", tmp_path / "t.csv", "--out", tmp_path / "t.csv"), "is a file"),
    ):
        code, out, err = rollsim(*words)
        assert (code, out) == (2, "")
        assert wanted in err
        assert "Traceback" not in err


def test_export(rollsim, tmp_path):
    samples.prime_rl(tmp_path / "log")
    assert rollsim("import", tmp_path / "log", "--out", tmp_path / "run")[0] == 0
    code, out, err = rollsim("export", tmp_path / "run", "--format", "trl", "--out", tmp_path / "t.json")
    assert (code, err) == (0, "")
    assert "step_time" in out
    code, out, _ = rollsim("export", tmp_path / "run", "--format", "chrome", "--out", tmp_path / "c.json", "--json")
    assert (code, json.loads(out)["written"]) == (0, ["steps", "segments"])
    for words, wanted in (
        (("--format", "perfeto", "--out", tmp_path / "x"), "no such format"),
        (("--format", "chrome", "--out", tmp_path / "c.json"), "stands there already"),
    ):
        code, out, err = rollsim("export", tmp_path / "run", *words)
        assert (code, out) == (2, "")
        assert wanted in err
    samples.azure(tmp_path / "trace")
    assert rollsim("import", tmp_path / "trace", "--out", tmp_path / "other")[0] == 0
    code, _, err = rollsim("export", tmp_path / "other", "--format", "verl", "--out", tmp_path / "y")
    assert code == 2
    assert "has no train steps" in err

"""`rollsim run` and `laws` as a user sees them."""

import json

import pytest
import yaml

from rollsim.cli.app import main
from rollsim.simulator import simulate
from rollsim.simulator.examples import EXAMPLES
from rollsim.simulator.invariants import Finding
from rollsim.traces.run import Run

SMALL = ("train.steps=2", "train.prompts_per_step=16", "train.samples_per_prompt=4")


@pytest.fixture
def rollsim(capsys):
    """Run the command line in this process: (exit code, stdout, stderr)."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([*map(str, words)])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_runs_and_holds_the_invariants(rollsim, name):
    code, out, err = rollsim("run", f"example:{name}", "train.steps=2", "--check", "--quiet")
    assert (code, err) == (0, "")
    assert "STEP TIME" in out
    assert "BROKEN" not in out
    assert out.count(" holds: ") >= 12


def test_a_run_folder_shows_what_was_printed(rollsim, tmp_path):
    folder = tmp_path / "run"
    code, printed, _ = rollsim("run", "example:async", *SMALL, "--out", folder, "--seed", 3)
    assert code == 0
    run = Run.open(folder)
    assert run.manifest["seed"] == 3
    assert {"rollouts", "steps", "spans", "gauges", "ledger"} <= set(run.tables)
    assert run.table("steps").num_rows == 2
    _, shown, _ = rollsim("show", folder)
    same = [line for line in printed.splitlines() if line and not line.startswith("Simulated")]
    assert [line for line in shown.splitlines() if line and not line.startswith("Simulated")] == same
    assert max(map(len, printed.splitlines())) <= 80


def test_json_is_all_that_is_on_stdout(rollsim):
    code, out, _ = rollsim("run", "example:sync", *SMALL, "--json", "--check")
    document = json.loads(out)
    assert code == 0
    assert document["steps"]["steps"] == 2
    assert all(finding["ok"] for finding in document["findings"])


def test_replications_are_a_folder_that_compare_pairs(rollsim, tmp_path):
    for name, eta in (("a", 1), ("b", 4)):
        words = (f"policies.admission=[{{use: staleness_quota, eta: {eta}}}]", "policies.selection=[]")
        code, out, _ = rollsim("run", "example:async", *SMALL, *words, "--replications", 3, "--out", tmp_path / name)
        assert code == 0
        assert "MEANS OF 3 REPLICATIONS" in out
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["rep-0", "rep-1", "rep-2"]
    code, out, _ = rollsim("compare", tmp_path / "a", tmp_path / "b", "--json")
    assert code == 0
    assert json.loads(out)["explained_total_s"] is not None


def test_replications_leave_no_older_ones_among_them(rollsim, tmp_path):
    words = ("run", "example:async", *SMALL, "--out", tmp_path / "a", "--quiet")
    assert rollsim(*words, "--replications", 3)[0] == 0
    code, out, err = rollsim(*words, "--replications", 2)
    assert (code, out) == (2, "")
    assert "rep-2" in err
    assert rollsim(*words, "--replications", 3)[0] == 0
    assert rollsim(*words)[0] == 2
    (tmp_path / "b").write_text("")
    assert rollsim("run", "example:async", *SMALL, "--out", tmp_path / "b", "--replications", 2)[0] == 2


def test_the_mean_over_replications(rollsim):
    """t interval of two values a, b: half width 12.706 |a - b| / 2."""
    code, out, _ = rollsim("run", "example:dynamic-sampling", *SMALL, "--replications", 2, "--json", "--seed", 5)
    document = json.loads(out)
    assert code == 0
    assert document["seeds"] == [5, 6]
    a, b = (run["steps"]["step_s"]["mean"] for run in document["runs"])
    mean = document["means"]["a step, s"]
    assert a != b
    assert mean["mean"] == pytest.approx((a + b) / 2)
    assert mean["high"] - mean["mean"] == pytest.approx(12.7062 * abs(a - b) / 2, rel=1e-4)


def test_a_broken_invariant_exits_with_1(rollsim, monkeypatch):
    broken = Finding("INV-1", "by hand", ok=False)
    monkeypatch.setattr(simulate, "check", lambda *_, **__: [broken])
    code, out, _ = rollsim("run", "example:async", *SMALL, "--check")
    assert code == 1
    assert str(broken) in out
    code, out, err = rollsim("run", "example:async", *SMALL, "--quiet")
    assert code == 1
    assert str(broken) in err
    assert str(broken) not in out


def test_the_seed_decides(rollsim):
    words = ("run", "example:dynamic-sampling", *SMALL, "--json")
    first, again, other = (rollsim(*words, "--seed", seed)[1] for seed in (1, 1, 2))
    assert json.loads(first)["steps"] == json.loads(again)["steps"]
    assert json.loads(first)["steps"] != json.loads(other)["steps"]


def test_print_config_is_a_config(rollsim, tmp_path):
    _, out, _ = rollsim("run", "example:async", "policies.weight_sync.keep_kv=true", "--print-config")
    policies = yaml.safe_load(out)["policies"]
    assert policies["weight_sync"] == {"use": "in_flight", "keep_kv": True}
    assert policies["readiness"] == "batch"
    path = tmp_path / "c.yaml"
    path.write_text(out)
    assert rollsim("run", path, "--print-config")[1] == out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("example:snyc",), ["example:snyc", "did you mean 'sync'"]),
        (("nothing.yaml",), ["nothing.yaml", "no such file"]),
        (("example:sync", "train.step=3", "cluster.gpus=0"), ["did you mean 'steps'", "cluster.gpus"]),
        (("example:sync", "train.steps", "cluster.gpus=0"), ["section.key=value", "cluster.gpus"]),
        (("example:sync", "model.profile=x", "workload.trace=nope.csv"), ["unknown profile", "nope.csv"]),
        (("example:async", "policies.admission.2.eta=1"), ["has 2 entries"]),
        (("example:sync", "policies.routing=least_lod"), ["did you mean 'least_load'"]),
        (("example:sync", "policies.tool_wait=holt"), ["policies.tool_wait"]),
        (("example:sync", "policies.admission={use: fixed_batch, ahed: 1}"), ["did you mean 'ahead'"]),
        (("example:sync", "policies.admission={use: fixed_batch, ahead: 1}"), ["shared GPUs"]),
        (("example:sync", "policies.round_end={use: first_k, unfinished: karry}"), ["carry, drop, keep"]),
        (("example:partial", "policies.selection=in_order"), ["closed round"]),
        (("example:async", "train.epochs=2", "policies.readiness=streaming"), ["train.epochs"]),
        (("example:sync", "train.publish=mini_batch"), ["train.publish"]),
        (
            ("example:sync", "train.exposed_comm=0.1", "train.mfu=1.2", "sync.path=ncl", "train.shardng=full"),
            ["did you mean 'exposed_communication'", "train.mfu", "did you mean 'nccl'", "did you mean 'sharding'"],
        ),
        (
            ("example:sync", "rollout.offload_train=optimiser", "sync.rate=1", "train.dtype=fp4"),
            ["did you mean 'optimizer'", "sync.rate", "did you mean 'fp8'"],
        ),
        (("example:large", "train.pipeline=3"), ["train.pipeline", "divisor of model_parallel"]),
        (
            ("example:large", "train.sharding=optimizer", "train.model_parallel=4"),
            [
                "cluster.gpus",
                "128 for training",
                "sharding full",
                "usable (weights 32.9, gradients 65.7, optimizer 6.2",
            ],
        ),
        (("example:sync", "model.profile=qwen3-8b-a100-tp1-bf16", "train.dtype=fp8"), ["train.dtype", "bf16"]),
        (("example:sync", "workload.law=rollpacker-math-14b"), ["one of workload.trace"]),
        (("example:sync", "workload.trace=null", "workload.law=rollpaker-math-14b"), ["rollpacker-math-14b"]),
        (("example:large", "cluster.gpus=130"), ["train.model_parallel", "train GPUs"]),
        (("example:sync", "rollout.max_model_len=400"), ["max_model_len"]),
    ],
)
def test_bad_input(rollsim, words, said):
    code, out, err = rollsim("run", *words)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    for word in said:
        assert word in err, err


def test_a_config_file_with_faults_names_them_all(rollsim, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(
        "model: {profile: x}\ncluster: {gpu: 16}\ntrain: {steps: many}\nworkload: {trace: t}\npolicies: {rooting: a}\n"
    )
    code, _, err = rollsim("run", path)
    assert code == 2
    for word in (
        "cluster.gpus",
        "did you mean 'gpus'",
        "train.steps",
        "train.prompts_per_step",
        "did you mean 'routing'",
    ):
        assert word in err, err
    path.write_text("model: [\n")
    assert "line 2" in rollsim("run", path)[2]


def test_a_world_that_fails_exits_with_1(rollsim):
    """Groups of one have no spread of rewards, so that selection drops every one."""
    code, out, err = rollsim("run", "example:dynamic-sampling", *SMALL, "train.samples_per_prompt=1")
    assert (code, out) == (1, "")
    assert "no batch in sight" in err


def test_laws(rollsim):
    code, out, _ = rollsim("laws", "list")
    assert code == 0
    assert "rollpacker-math-14b" in out
    code, out, _ = rollsim("laws", "show", "r1-distill-1.5b-aime")
    assert code == 0
    assert "held out" in out
    assert max(map(len, out.splitlines())) <= 80
    assert json.loads(rollsim("laws", "show", "rollpacker-code-14b", "--json")[1])["cap_tokens"] == 16384
    code, _, err = rollsim("laws", "show", "rollpacker-code")
    assert (code, "did you mean" in err) == (2, True)

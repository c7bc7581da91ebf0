"""From a measurement to a profile and a verdict, on an engine whose cost is known."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rollsim.calibration.measure import measure
from rollsim.calibration.measured import open_measurement
from rollsim.calibration.measured_profile import fit_profile
from rollsim.calibration.recorder import record
from rollsim.cli.app import main
from rollsim.simulator.costs import StepCost
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.step_tables import padded
from tests.calibration.fake_engine import LIMITS, FakeDriver, FakeEngine, config

COST = {"base_s": 5e-3, "token_s": 3e-4, "mixed_token_s": 1e-4, "kv_read_s": 1e-6, "prefill_attn_s": 5e-8}
SHAPE = {"heads": 4, "kv_heads": 2, "head_dim": 16, "hidden": 64, "parameters": 1_000_000, "kv_dtype": "bfloat16"}


class KnownEngine(FakeEngine):
    """Takes what `COST` says, times noise."""

    noise = 0.01
    calls = 0

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.facts["model"] |= SHAPE
        self.facts["device"] |= {"memory_gib": 16.0}

    def cost(self):
        limits = self._limits
        return StepCost.affine(limits.max_num_batched_tokens, limits.max_num_seqs, **COST)

    def record(self, batch):
        limits = self._limits
        made = record(batch, FakeDriver(limits, self.cost()), config(limits), self._seed)
        type(self).calls += 1
        rng = np.random.default_rng(type(self).calls)
        for times in made["repeats"]:
            factor = 1 + self.noise * rng.standard_normal(len(times["cpu_ms"]))
            times["cpu_ms"] = (np.array(times["cpu_ms"]) * factor).tolist()
        return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("measured")
    (place / "tiny").mkdir()
    (place / "tiny" / "config.json").write_text("{}")
    measure(str(place / "tiny"), place / "m", minutes=0.02, open_engine=KnownEngine)
    return place / "m"


@pytest.fixture
def rollsim(capsys):
    def run(*words):
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return end.value.code, out, err

    return run


@pytest.fixture(scope="module")
def profile(folder) -> Path:
    path = folder.parent / "p.json"
    with pytest.raises(SystemExit) as end:
        main(["calibrate", "fit", str(folder), "--out", str(path), "--quiet", "--json"])
    assert end.value.code == 0
    return path


def test_the_profile_is_the_cost_of_the_engine(profile):
    made = load_profile(str(profile))
    limits = replace(LIMITS, num_blocks=made.kv.num_blocks)
    fitted, true = made.step_cost(limits), StepCost.affine(limits.max_num_batched_tokens, limits.max_num_seqs, **COST)
    sizes = list(made.costs.decode.batch)
    assert sizes == [1, 2, 4, 8]
    np.testing.assert_allclose(fitted.decode_s[sizes], true.decode_s[sizes], rtol=0.02)
    tokens = list(made.costs.prefill.tokens)
    np.testing.assert_allclose(fitted.mixed_s[tokens], true.mixed_s[tokens], rtol=0.05)
    assert fitted.kv_read_s[4] == pytest.approx(COST["kv_read_s"], rel=0.2)
    assert fitted.prefill_attn_s == pytest.approx(COST["prefill_attn_s"], rel=0.2)
    assert made.name == "tiny-none-measured"
    assert "measured on this machine" in made.source.name
    assert made.fit.covariance is not None
    assert len(made.fit.covariance.names) == len(sizes) + len(tokens) + 2
    assert {claim.grade for claim in made.claims} == {"fitted", "predicted", "measured"}
    assert set(made.fit.held_out) == {"decode steps of held-out batches", "steps with prefill of held-out batches"}


def test_host_time_is_told_apart_where_the_engine_tells_it(tmp_path):
    """2 ms of each step are the host's, and more with each request; then asynchronous scheduling hides them."""

    class Telling(KnownEngine):
        def record(self, batch):
            made = super().record(batch)
            at = made["columns"].index("n_gen_requests")
            for times in made["repeats"]:
                times["host_cpu_ms"] = [2.0 + 0.1 * max(0, row[at] - 1) for row in made["rows"]]
                times["host_wall_ms"] = times["host_cpu_ms"]
            return made

    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    measure(str(tmp_path / "tiny"), tmp_path / "m", minutes=0.02, open_engine=Telling)
    made = fit_profile(open_measurement(tmp_path / "m"))
    assert made.costs.host_s == pytest.approx(2e-3, rel=0.01)
    assert {claim.part: claim.grade for claim in made.claims}["host time"] == "measured"
    true = StepCost.affine(LIMITS.max_num_batched_tokens, LIMITS.max_num_seqs, **COST)
    sync, overlapped = (made.step_cost(replace(LIMITS, async_scheduling=how)) for how in (False, True))
    one = [(1, 0.0, 0.0)]
    assert sync.step_s(1, True, one) == pytest.approx(true.step_s(1, True, one), rel=0.02)
    assert overlapped.step_s(1, True, one) == pytest.approx(true.step_s(1, True, one) - 2e-3, rel=0.02)
    assert pq.read_table(tmp_path / "m" / "engine_steps.parquet")["host_s"][0].as_py() == pytest.approx(2e-3)


def test_steps_that_are_padded_to_graph_sizes(tmp_path):
    """An engine that computes 1, 4, 8 or 16 tokens instead of fewer."""
    sizes = (1, 4, 8, 16)

    class Padding(KnownEngine):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.facts["engine"]["graph_sizes"] = list(sizes)

        def cost(self):
            whole = super().cost()
            at = padded(np.arange(len(whole.decode_s)), (0, *sizes))
            return replace(whole, decode_s=whole.decode_s[at], mixed_s=whole.mixed_s[at])

    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    measure(str(tmp_path / "tiny"), tmp_path / "m", minutes=0.02, open_engine=Padding)
    made = fit_profile(open_measurement(tmp_path / "m"))
    fitted = made.step_cost(LIMITS)
    true = StepCost.affine(LIMITS.max_num_batched_tokens, LIMITS.max_num_seqs, **COST)
    np.testing.assert_allclose(fitted.decode_s[1:9], true.decode_s[[1, 4, 4, 4, 8, 8, 8, 8]], rtol=0.02)
    assert made.fit.held_out["decode steps of held-out batches"].median < 0.02


def test_it_passes_on_batches_it_has_not_seen(rollsim, folder, profile):
    code, out, _ = rollsim("calibrate", "validate", folder, "--profile", profile, "--tolerance", 0.02)
    assert code == 0
    assert "scheduling   equal in all" in out
    assert "passed" in out
    assert max(map(len, out.splitlines())) <= 80
    document = json.loads(rollsim("calibrate", "validate", folder, "--profile", profile, "--json")[1])
    assert document["r2"] > 0.99
    assert document["noise"] < 0.02
    assert {row["name"] for row in document["batches"]} == {
        batch["name"] for batch in json.loads((folder / "manifest.json").read_text())["planned"]
        if batch["role"] == "held_out"
    }  # fmt: skip
    for row in document["batches"]:
        by_name = {metric["name"]: metric for metric in row["metrics"]}
        assert by_name["throughput"]["predicted"] * by_name["makespan"]["predicted"] == pytest.approx(
            by_name["throughput"]["measured"][0] * by_name["makespan"]["measured"][0]
        )
        assert by_name["first token P50"]["predicted"] <= by_name["completion P50"]["predicted"]
        assert by_name["completion P99"]["predicted"] <= by_name["makespan"]["predicted"]


def test_a_profile_of_another_engine_is_outside_tolerance(rollsim, folder, profile, tmp_path):
    document = json.loads(profile.read_text())
    document["costs"]["decode"]["dense_s"] = [2 * value for value in document["costs"]["decode"]["dense_s"]]
    (tmp_path / "slow.json").write_text(json.dumps(document))
    code, out, _ = rollsim("calibrate", "validate", folder, "--profile", tmp_path / "slow.json")
    assert code == 3
    assert "OUTSIDE TOLERANCE" in out
    assert "note" not in out


def test_a_profile_of_another_model_is_told(rollsim, folder):
    _, out, _ = rollsim("calibrate", "validate", folder, "--profile", "qwen3-8b-h100-tp1-bf16")
    assert "the profile is of the model Qwen/Qwen3-8B, measured was tiny" in out
    assert max(map(len, out.splitlines())) <= 80


def edited(folder: Path, to: Path, edit) -> Path:
    """A copy of the measurement with its recordings changed."""
    (to / "recordings").mkdir(parents=True)
    (to / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())
    for file in (folder / "recordings").iterdir():
        document = json.loads(file.read_text())
        if edit(document) is not False:
            (to / "recordings" / file.name).write_text(json.dumps(document))
    return to


def test_a_machine_that_is_too_noisy_makes_it_void(rollsim, folder, profile, tmp_path):
    def edit(document):
        if document["role"] == "reference":
            first = document["repeats"][0]
            first["cpu_ms"] = [3 * value for value in first["cpu_ms"]]

    code, out, _ = rollsim("calibrate", "validate", edited(folder, tmp_path / "m", edit), "--profile", profile)
    assert code == 3
    assert "VOID" in out


def test_steps_that_the_simulator_does_not_take_are_named(rollsim, folder, profile, tmp_path):
    def edit(document):
        if document["role"] == "held_out":
            document["rows"][3][document["columns"].index("kv_tokens")] += 1

    other = edited(folder, tmp_path / "m", edit)
    for words in (("validate", other, "--profile", profile), ("fit", other, "--out", tmp_path / "p.json")):
        code, out, err = rollsim("calibrate", *words)
        assert (code, out) == (2, "")
        assert "step 3: the simulator takes other steps: kv_tokens" in err
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize("kept", ["fit", "held_out"])
def test_what_was_not_measured_is_asked_for(rollsim, folder, profile, tmp_path, kept):
    other = edited(folder, tmp_path / "m", lambda document: document["role"] == kept)
    code, _, err = rollsim("calibrate", "validate", other, "--profile", profile)
    if kept == "fit":
        assert code == 2
        assert "no held-out batch" in err
    else:
        assert code == 3
        code, _, err = rollsim("calibrate", "fit", other, "--out", tmp_path / "p.json")
        assert code == 2
        assert "no batch was measured" in err


def test_bad_input(rollsim, folder, tmp_path):
    code, _, err = rollsim("calibrate", "fit", tmp_path / "absent", "--out", tmp_path / "p.json")
    assert code == 2
    assert "no measurement" in err
    assert not (tmp_path / "absent").exists()
    code, _, err = rollsim("calibrate", "validate", folder, "--profile", "qwen3-8b-h10")
    assert code == 2
    assert "did you mean" in err
    code, _, err = rollsim("calibrate", "fit", folder, "--out", tmp_path / "no" / "p.json")
    assert code == 2
    assert "--out" in err
    code, _, err = rollsim("calibrate", "fit", folder, "--out", tmp_path / "p.json", "--name", "No Name")
    assert code == 2
    assert "--name" in err


def test_quick_measures_fits_and_judges(rollsim, tmp_path, monkeypatch):
    engine = "rollsim.calibration.engine_process.EngineProcess"
    monkeypatch.setattr(engine, KnownEngine)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    code, out, err = rollsim("calibrate", "quick", tmp_path / "tiny", "--out", tmp_path / "m", "--minutes", 0.1)
    assert code == 0
    assert "passed" in out
    assert "profile.json" in err
    assert load_profile(str(tmp_path / "m" / "profile.json")).name == "tiny-none-measured"

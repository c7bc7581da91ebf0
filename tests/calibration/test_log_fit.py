"""From a training log to factors on a profile: known ones come back, later steps are predicted, faults are told."""

import csv
import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from rollsim.calibration.log_fit import fit_log
from rollsim.calibration.log_profile import log_profile
from rollsim.calibration.log_report import document, text
from rollsim.calibration.logged_lengths import spread_lengths
from rollsim.calibration.logged_steps import LoggedSteps
from rollsim.calibration.logged_world import LoggedWorld
from rollsim.cli.app import main
from rollsim.simulator.config import Config, parse
from rollsim.simulator.profile_store import load_profile
from rollsim.traces.errors import BadInput

BASE = "qwen3-8b-h100-tp1-bf16"
PROMPTS, SAMPLES = 32, 4
GENERATION, SWITCH, TRAIN, FORWARD, SYNC = 1.7, 2.5, 1.4, 1.9, 3.0


def config(profile: str = BASE, **sections) -> Config:
    written = {
        "model": {"profile": profile},
        "cluster": {"gpus": 16},
        "train": {"steps": 1, "prompts_per_step": PROMPTS, "samples_per_prompt": SAMPLES},
        "sync": {"path": "colocated"},
        "workload": {"trace": "example:grpo"},
        "policies": {"allocation": "colocate", "routing": "even_split"},
    }
    return parse(written | sections)


def lengths(steps: int, vary: float = 1.0) -> LoggedSteps:
    """Steps whose responses get longer and shorter, with no times yet."""
    at = np.arange(steps)
    mean = 500 + vary * 300 * np.sin(at)
    return LoggedSteps(
        file="run.jsonl",
        number=at + 1,
        prompt_tokens=np.full(steps, 120.4),
        output_tokens=mean,
        longest_tokens=np.rint(4 * mean),
        cut_share=np.zeros(steps),
        trajectories=np.full(steps, PROMPTS * SAMPLES),
        seconds={},
    )


def log(steps: int = 30, noise: float = 0.0, vary: float = 1.0, **sections) -> LoggedSteps:
    """What the config's own simulation takes, times known factors."""
    told = lengths(steps, vary)
    world = LoggedWorld(config(**sections), told, "c")
    rates = world.run(1, {}).rates
    slower = {name: rates[name] / TRAIN for name in ("mfu", "attention_mfu", "link_bytes_per_s")}
    made = world.run(steps, slower | {"forward_mfu": rates["forward_mfu"] / FORWARD})
    rng = np.random.default_rng(0)
    seconds = {
        "generate_s": GENERATION * made.columns["generate_s"],
        "logprob_s": made.columns["logprob_s"],
        "train_s": made.columns["train_s"],
        "weight_sync_s": SYNC * made.columns["weight_sync_s"],
    }
    seconds = {name: values * (1 + noise * rng.standard_normal(steps)) for name, values in seconds.items()}
    seconds["step_s"] = np.sum(list(seconds.values()), axis=0) + SWITCH * made.columns["switch_s"]
    return replace(told, seconds=seconds)


def test_known_factors_come_back():
    fit = fit_log(log(), config(), "c", steps=20)
    found = {name: factor.value for name, factor in fit.factors.items()}
    known = {"generation": GENERATION, "switch": SWITCH, "train": TRAIN, "forward": FORWARD, "weight_sync": SYNC}
    assert found == pytest.approx(known, rel=1e-6)
    for phase in fit.phases:
        np.testing.assert_allclose(phase.predicted_s, phase.measured_s, rtol=1e-6)
    assert [phase.name for phase in fit.phases][-1] == "all of these"
    assert fit.fitted == 20


def test_noise_and_a_restart_move_no_factor_far_and_the_error_says_how_far():
    noisy = log(40, noise=0.03)
    slow = noisy.seconds["step_s"].copy()
    slow[::10] += 600.0
    fit = fit_log(replace(noisy, seconds=noisy.seconds | {"step_s": slow}), config(), "c", steps=40)
    for name, true in (("generation", GENERATION), ("train", TRAIN), ("forward", FORWARD), ("weight_sync", SYNC)):
        factor = fit.factors[name]
        assert factor.value == pytest.approx(true, rel=0.05)
        assert abs(factor.value - true) < 4 * factor.error


def test_the_profile_takes_as_long_as_the_fit_says(tmp_path):
    fit = fit_log(log(), config(), "c", steps=20)
    made = log_profile(fit, config())
    path = tmp_path / "mine.json"
    made.write(path)
    assert load_profile(str(path)) == made
    assert made.name == f"{BASE}-run"
    run = LoggedWorld(config(str(path)), fit.logged, "c").run(30, {})
    columns = fit.logged.seconds
    for name in ("generate_s", "logprob_s", "train_s", "weight_sync_s"):
        np.testing.assert_allclose(run.columns[name], columns[name], rtol=1e-3)
    np.testing.assert_allclose(run.sum("generate_s", "logprob_s", "train_s", "weight_sync_s", "switch_s"),
                               columns["step_s"], rtol=1e-3)  # fmt: skip
    assert made.bias is not None
    assert (made.bias.match, made.bias.n) == ("the same run", 10)
    assert {value.grade for value in (made.train.mfu, made.train.forward_mfu, made.sync.switch_fixed_s) if value} == {
        "fitted"
    }
    assert "x 1.700, fitted to 20 steps of run.jsonl" in made.claims[0].how
    assert any(name.startswith("generation and the rest, later") for name in made.fit.held_out)


def test_lengths_that_do_not_vary_leave_the_switch_as_it_was():
    fit = fit_log(log(20, noise=0.02, vary=0.02), config(), "c")
    assert "switch" not in fit.factors
    assert any("vary too little" in note for note in fit.notes)
    assert log_profile(fit, config()).sync.switch_fixed_s is None
    assert abs(np.median(fit.phases[0].predicted_s / fit.phases[0].measured_s) - 1) < 0.02


def test_what_the_log_does_not_tell_goes_with_the_phase_that_holds_it():
    """No log-prob and no weight sync of their own: with training, and with the switch."""
    whole = log()
    seconds = dict(whole.seconds)
    seconds["train_s"] = seconds["train_s"] + seconds.pop("logprob_s")
    seconds["generate_s"] = seconds["generate_s"] + seconds.pop("weight_sync_s")
    fit = fit_log(replace(whole, seconds=seconds), config(), "c")
    assert set(fit.factors) == {"generation", "switch", "train"}
    assert fit.factors["generation"].value == pytest.approx(GENERATION, rel=0.02)
    assert TRAIN < fit.factors["train"].value < FORWARD
    assert fit.syncs_with_switch
    assert [phase.name for phase in fit.phases] == ["generation and the rest", "train and logprob", "all of these"]
    np.testing.assert_allclose(fit.phases[-1].predicted_s, fit.phases[-1].measured_s, rtol=0.05)


def test_generation_beside_training_tells_no_cost_of_it():
    ahead = {"policies": {"allocation": {"use": "static_split", "rollout_gpus": 8}, "admission":
                          {"use": "fixed_batch", "ahead": 1}}, "sync": {"path": "nccl"}}  # fmt: skip
    fit = fit_log(log(**ahead), config(**ahead), "c")
    assert "generation" not in fit.factors
    assert fit.factors["train"].value == pytest.approx(TRAIN, rel=1e-6)
    assert any("beside training" in note for note in fit.notes)


def test_the_report_fits_a_terminal_and_the_document_is_json():
    fit = fit_log(log(noise=0.01), config(), "c", steps=20)
    said = document(fit, BASE, "mine")
    shown = text(said)
    assert max(map(len, shown.splitlines())) <= 80
    assert "20 steps fitted, 10 later ones held out" in shown
    assert json.loads(json.dumps(said))["phases"][0]["held_out"]["median_size"] < 0.05


FAULTS = {
    "too few steps": (lambda told: replace(told, number=told.number[:5]), "8 or more"),
    "another batch": (lambda told: replace(told, trajectories=2 * told.trajectories), "have 256"),
    "no time at all": (lambda told: replace(told, seconds={"validation_s": told.seconds["step_s"]}), "can be fitted"),
    "faster than the peak": (
        lambda told: replace(told, seconds=told.seconds | {"train_s": told.seconds["train_s"] / 50}),
        "faster than the GPUs",
    ),
    "no such lengths": (lambda told: replace(told, longest_tokens=told.output_tokens - 1), "no lengths have"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_log_that_is_not_of_this_config_is_refused(case):
    change, said = FAULTS[case]
    with pytest.raises(BadInput) as error:
        fit_log(change(log(10)), config(), "c")
    assert said in str(error.value)


@given(
    count=st.integers(2, 600),
    longest=st.integers(50, 40_000),
    place=st.floats(0.02, 0.98),
    cut=st.floats(0.0, 0.9),
)
def test_lengths_have_the_mean_and_the_longest_that_the_log_tells(count, longest, place, cut):
    # A response more than the cut ones may lie at the edge.
    floor = longest * (cut + 1 / count) + 2
    assume(floor < longest)
    mean = floor + place * (longest - floor)
    made = spread_lengths(mean, longest, cut, count)
    assert len(made) == count
    assert made.min() >= 1
    assert (np.diff(made) >= 0).all()
    assert made.max() == longest
    assert made.mean() == pytest.approx(mean, abs=0.51)


@pytest.mark.parametrize(("mean", "longest", "cut"), [(0, 10, 0), (11, 10, 0), (100, 1000, 0.5), (5, 10, 1.0)])
def test_means_that_no_lengths_have(mean, longest, cut):
    with pytest.raises(ValueError, match="a mean of"):
        spread_lengths(mean, longest, cut, 100)


@pytest.fixture
def rollsim(capsys):
    def run(*words):
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return end.value.code, out, err

    return run


def write_log(path, told: LoggedSteps, leave_out=()) -> None:
    """As verl's file logger writes it."""
    names = {"generate_s": "timing_s/gen", "logprob_s": "timing_s/old_log_prob", "train_s": "timing_s/update_actor",
             "weight_sync_s": "timing_s/update_weights", "step_s": "timing_s/step"}  # fmt: skip
    columns = {own: told.seconds[name] for name, own in names.items()} | {
        "response_length/mean": told.output_tokens,
        "response_length/max": told.longest_tokens,
        "response_length/clip_ratio": told.cut_share,
        "prompt_length/mean": told.prompt_tokens,
    }
    with path.open("w") as file:
        for i, step in enumerate(told.number):
            data = {name: float(values[i]) for name, values in columns.items() if name not in leave_out}
            file.write(json.dumps({"step": int(step), "data": data}) + "\n")


@pytest.fixture
def written(tmp_path):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config().model_dump(mode="json")))
    write_log(tmp_path / "run.jsonl", log(20))
    return tmp_path


def test_from_a_log_to_a_run(rollsim, written):
    fit = ("calibrate", "fit", "--from-log", written / "run.jsonl", "--config", written / "c.yaml")
    code, out, err = rollsim(*fit, "--steps", 12, "--out", written / "mine.json")
    assert code == 0, err
    assert "12 steps fitted, 8 later ones held out" in " ".join(out.split())
    assert "1.700" in out
    document = json.loads(rollsim(*fit, "--out", written / "mine.json", "--json")[1])
    assert document["factors"]["train"]["value"] == pytest.approx(TRAIN, rel=0.01)
    code, out, _ = rollsim("run", written / "c.yaml", f"model.profile={written / 'mine.json'}", "--quiet")
    assert code == 0
    assert "fitted       " in out
    assert "train step: mfu" in out


def test_steps_that_lack_something_are_left_out_and_counted(rollsim, written):
    lines = (written / "run.jsonl").read_text().splitlines()
    lines[3] = lines[3].replace("timing_s/gen", "other")
    (written / "run.jsonl").write_text("\n".join(lines))
    fit = ("calibrate", "fit", "--from-log", written / "run.jsonl", "--config", written / "c.yaml")
    code, out, _ = rollsim(*fit, "--out", written / "mine.json")
    assert code == 0
    assert "1 of 20 steps of the log lack what the others tell" in " ".join(out.split())


def test_a_log_without_lengths_is_refused_with_what_is_missing(rollsim, written):
    write_log(written / "run.jsonl", log(20), leave_out=("response_length/max", "prompt_length/mean"))
    fit = ("calibrate", "fit", "--from-log", written / "run.jsonl", "--config", written / "c.yaml")
    code, _, err = rollsim(*fit, "--out", written / "mine.json")
    assert code == 2
    assert "response_tokens_max" in err
    assert "prompt_tokens_mean" in err
    assert not (written / "mine.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from-log", "run.jsonl", "--out", "p.json"), "--config"),
        (("--from-log", "none.jsonl", "--config", "c.yaml", "--out", "p.json"), "none.jsonl"),
        (("--from-log", "run.jsonl", "--config", "c.yaml"), "--out"),
        (("--from-log", "run.jsonl", "--config", "c.yaml", "--out", "p.txt"), "*.json"),
        (("--from-log", "run.jsonl", "--config", "c.yaml", "train.nope=1", "--out", "p.json"), "nope"),
        (("--from-log", "run.jsonl", "--source", "verll", "--config", "c.yaml", "--out", "p.json"), "verl"),
        (("m", "--config", "c.yaml", "--out", "p.json"), "belongs to --from-log"),
        (("--out", "p.json"), "one measurement is needed"),
    ],
)
def test_words_that_do_not_go_together(rollsim, written, monkeypatch, words, said):
    monkeypatch.chdir(written)
    code, _, err = rollsim("calibrate", "fit", *words)
    assert code == 2
    assert said in err
    assert "Traceback" not in err


QWEN = {
    "cluster": {"gpus": 8},
    "rollout": {"gpu_memory_utilization": 0.6},
    "train": {"steps": 1, "prompts_per_step": 1024, "samples_per_prompt": 5, "mini_batches": 4},
}


def test_later_steps_of_a_real_run_are_predicted_from_its_first_thirty(shared_data):
    """Qwen2-7B with Megatron in verl: model and GPU are not those of the profile, the factors make up for it."""
    with gzip.open(shared_data / "rl_steps" / "verl_log_steps.csv.gz", "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["log"] == "diqiu_gpg_qwen2-7b_math_megatron.log"]
    column = {name: np.array([float(row[name] or 0) for row in rows]) for name in rows[0] if name != "log"}
    names = {"generate_s": "gen", "logprob_s": "old_log_prob", "train_s": "update_actor", "step_s": "step",
             "reward_s": "reward", "validation_s": "testing", "checkpoint_s": "save_checkpoint"}  # fmt: skip
    logged = LoggedSteps(
        "verl.log",
        column["step"],
        column["prompt_length/mean"],
        column["response_length/mean"],
        column["response_length/max"],
        column["response_length/clip_ratio"],
        None,
        {name: column[f"timing_s/{own}"] for name, own in names.items()},
    )
    fit = fit_log(logged, config("qwen3-8b-h100-tp2-bf16", **QWEN), "c", steps=30)
    errors = {phase.name: np.median(np.abs(phase.predicted_s / phase.measured_s - 1)[30:]) for phase in fit.phases}
    assert len(logged) - fit.fitted == 75
    assert errors["all of these"] < 0.10
    assert max(errors.values()) < 0.12

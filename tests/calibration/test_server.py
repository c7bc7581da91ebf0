"""Measuring and watching a server whose step times are known, and all that can go wrong with one."""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

from rollsim.calibration.drift import DECIDING, Expected, Window, drift
from rollsim.calibration.engine_faults import EngineFailed
from rollsim.calibration.measured import judge, open_measurement
from rollsim.calibration.server_features import stream_steps
from rollsim.calibration.server_measure import measure_server
from rollsim.calibration.server_metrics import ServerMetrics, read_metrics
from rollsim.calibration.watch import watch
from rollsim.cli.app import main
from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.profile_store import load_profile
from tests.calibration.fake_server import BASE_S, KV_S, PREFILL_S, TOKEN_S, serving

SHAPE = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
         "intermediate_size": 128, "vocab_size": 1000}  # fmt: skip


@pytest.fixture
def rollsim(capsys):
    def run(*words):
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return end.value.code, out, err

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("served")
    (place / "config.json").write_text(json.dumps(SHAPE))
    stated = {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 512,
        "model_config": str(place / "config.json"),
        "memory_gib": 8.0,
    }
    with serving() as fake:
        measure_server(fake.url, place / "m", minutes=0.05, stated=stated)
    return place / "m"


@pytest.fixture(scope="module")
def profile(folder) -> Path:
    path = folder.parent / "p.json"
    with pytest.raises(SystemExit) as end:
        main(["calibrate", "fit", str(folder), "--out", str(path), "--quiet", "--json"])
    assert end.value.code == 0
    return path


def test_responses_and_gauges_are_kept_in_our_schema(folder):
    rollouts = pq.read_table(folder / "rollouts.parquet").to_pylist()
    assert {row["framework"] for row in rollouts} == {"vllm"}
    assert all(row["t_submit_s"] < row["t_first_token_s"] <= row["t_end_s"] for row in rollouts)
    assert all(row["output_tokens"] == row["max_output_tokens"] for row in rollouts)
    gauges = pq.read_table(folder / "gauges.parquet")
    assert len(gauges) > 0
    assert set(gauges["kv_total_blocks"].to_pylist()) == {1000}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["level"] == "request"
    assert manifest["assumed"] == []


def test_steps_that_a_client_can_tell_are_those_of_the_server():
    """Two requests whose tokens come every 10 ms, the second one for four tokens more."""

    def stream(count):
        return {"submit_s": 0.0, "at_s": [0.05 + 0.01 * i for i in range(count)], "tokens": list(range(1, count + 1))}

    requests = [{"id": id, "prompt_tokens": 30, "before_step": 0} for id in "ab"]
    steps, seconds = stream_steps(
        [{"requests": requests, "repeats": [{"streams": {"a": stream(8), "b": stream(14)}}]}], 512
    )
    assert steps.sequences.tolist() == [2, 2, 1]
    np.testing.assert_allclose(seconds, 0.01)
    # Windows of 3 steps: from 1 and from 4 tokens each; in the next one the first ends; then from 10 of the other.
    np.testing.assert_allclose(steps.kv_tokens, [2 * 31 + 2, 2 * 34 + 2, 40 + 1])
    assert not steps.prefill.any()


def test_tokens_that_come_all_at_once_tell_no_step(rollsim, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "m")
    for file in (tmp_path / "m" / "recordings").glob("*.json"):
        recording = json.loads(file.read_text())
        for stream in (stream for repeat in recording["repeats"] for stream in repeat["streams"].values()):
            last_s = stream["at_s"][-1]
            stream["at_s"] = [last_s - 1e-5 * i for i in reversed(range(len(stream["at_s"])))]
        file.write_text(json.dumps(recording))
    code, _, err = rollsim("calibrate", "fit", tmp_path / "m", "--out", tmp_path / "p.json")
    assert code == 2
    assert "all at once" in err


def test_a_profile_through_the_server_is_its_cost(profile):
    made = load_profile(str(profile))
    cost = made.step_cost(made.limits())
    for batch in (1, 4, 8):
        for context in (20, 200):
            true_s = BASE_S + TOKEN_S * batch + KV_S * batch * context
            assert cost.step_s(batch, True, [(batch, batch * context, 0.0)]) == pytest.approx(true_s, rel=0.35)
    grown_s = cost.mixed_s[400] - cost.mixed_s[100] + cost.prefill_attn_s * (400**2 - 100**2) / 2
    assert grown_s == pytest.approx(300 * PREFILL_S, rel=0.5)
    grades = {claim.part: claim.grade for claim in made.claims}
    assert grades["host time"] == "assumed"
    assert grades["mixed prefill and decode step"] == "extrapolated"
    assert any("through a server" in caution for caution in made.cautions)
    assert (np.diff(cost.mixed_s[1:]) >= 0).all()
    assert (cost.mixed_s[1:9] >= cost.decode_s[1:9] * (1 - 1e-9)).all()


def test_held_out_batches_are_predicted_and_steps_are_said_not_to_be_seen(rollsim, folder, profile):
    document = judge(open_measurement(folder), load_profile(str(profile)), 1.0)
    assert document["steps"] is None
    assert document["worst_makespan_error"] < 0.35
    assert document["r2"] > 0.7
    code, out, _ = rollsim("calibrate", "validate", folder, "--profile", profile, "--tolerance", 5)
    assert code == 0
    assert "not compared" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_second_call_goes_on(folder, tmp_path):
    with serving(scale=0.1) as fake:
        first = measure_server(fake.url, tmp_path / "m", minutes=0.001, stated={"max_num_seqs": 2})
        again = measure_server(fake.url, tmp_path / "m", minutes=0.01, stated={"max_num_seqs": 2})
    before, after = ({row["name"]: row["wall_s"] for row in document["batches"]} for document in (first, again))
    assert before.keys() == after.keys()
    assert all(after[name][: len(times)] == times for name, times in before.items())
    assert first["assumed"] == ["max_num_batched_tokens"]


FAULTS = {
    "500": (1, "says 500"),
    "stalls": (1, "stalled"),
    "stalls in the middle": (1, "stalled"),
    "breaks off": (1, "broke off"),
    "no JSON": (1, "something else than JSON"),
    "stops early": (1, "ignore_eos"),
    "other program": (2, "no OpenAI-compatible server"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_fails_is_told_and_what_was_measured_is_kept(rollsim, tmp_path, fault):
    """It fails after 12 completions, in the middle of the sweep; a server that works again is gone on with."""
    code, said = FAULTS[fault]
    words = (
        "calibrate",
        "measure",
        "--out",
        tmp_path / "m",
        "--minutes",
        0.1,
        "--max-num-seqs",
        2,
        "--patience-s",
        0.5,
    )
    with serving(fault=fault, fault_after=12, scale=0.1) as fake:
        ended, _, err = rollsim(*words, fake.url)
        assert ended == code
        assert said in err
        assert "Traceback" not in err
        if code == 1:
            assert "what was measured is kept" in err
            assert list((tmp_path / "m" / "recordings").glob("*.json"))
            fake.fault = ""
            done = measure_server(fake.url, tmp_path / "m", minutes=0.001, stated={"max_num_seqs": 2})
            assert len(done["batches"]) == done["planned"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("http://127.0.0.1:9",), 1, "cannot be reached"),
        (("{url}", "--dtype", "bfloat16"), 2, "a running server is not changed"),
        (("./model", "--gpu", "H100"), 2, "is for a server"),
        (("{url}", "--model-config", "none.json"), 2, "none.json"),
        (("{url}", "--gpu", "H1000"), 2, "H1000"),
    ],
)
def test_bad_words(rollsim, tmp_path, words, code, said):
    with serving() as fake:
        given = [word.format(url=fake.url) for word in words]
        ended, _, err = rollsim("calibrate", "measure", *given, "--out", tmp_path / "m")
    assert (ended, said in err, "Traceback" in err) == (code, True, False), err


def test_a_server_that_takes_no_token_ids_is_no_server_to_measure(rollsim, tmp_path):
    with serving(token_ids=False) as fake:
        code, _, err = rollsim("calibrate", "measure", fake.url, "--out", tmp_path / "m")
    assert code == 2
    assert "prompt must be text" in err


def test_a_server_without_metrics_is_measured_and_its_limits_assumed(rollsim, tmp_path):
    with serving(has_metrics=False, owner="somebody", scale=0.1) as fake:
        document = measure_server(fake.url, tmp_path / "m", minutes=0.001, stated={"max_num_seqs": 2})
        assert document["assumed"] == ["block_size", "max_num_batched_tokens", "num_blocks"]
        assert pq.read_table(tmp_path / "m" / "gauges.parquet").num_rows == 0
        code, _, err = rollsim("calibrate", "fit", tmp_path / "m", "--out", tmp_path / "p.json")
        assert code == 2
        assert "no vLLM" in err
        assert rollsim("calibrate", "watch", fake.url, "--profile", "qwen3-8b-h100-tp1-bf16", "--every", 0.1)[0] == 2


def test_what_a_profile_needs_and_no_server_tells_is_named(rollsim, tmp_path):
    with serving(scale=0.1) as fake:
        measure_server(fake.url, tmp_path / "m", minutes=0.001, stated={"max_num_seqs": 2})
    code, _, err = rollsim("calibrate", "fit", tmp_path / "m", "--out", tmp_path / "p.json")
    assert code == 2
    assert "model.layers" in err
    assert "device.memory_gib" in err


@contextmanager
def load(fake) -> Iterator[None]:
    """Keep a server busy: four clients, one request after the other, gone before the server goes."""
    stop = threading.Event()

    def ask() -> None:
        with httpx.Client(trust_env=False) as client:
            while not stop.is_set():
                client.post(f"{fake.url}/v1/completions", json={"prompt": [1] * 50, "max_tokens": 20}, timeout=20)

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        stop.set()
        for client in clients:
            client.join()


@pytest.mark.parametrize(("scale", "drifted"), [(1.0, False), (4.0, True)])
def test_a_profile_that_no_longer_holds_is_told(rollsim, profile, scale, drifted):
    with serving(scale=scale) as fake, load(fake):
        words = ("--minutes", 0.07, "--every", 0.5, "--tolerance", 0.8)
        code, out, err = rollsim("calibrate", "watch", fake.url, "--profile", profile, *words)
    assert code == (3 if drifted else 0), (out, err)
    assert ("DRIFTED" in out) == drifted
    assert max(map(len, out.splitlines())) <= 80


def test_a_server_that_goes_away_is_told_with_what_was_seen(profile):
    seen = []
    with serving() as fake, load(fake):

        def cut(window, _at_s):
            seen.append(window)
            fake.has_metrics = False

        document = watch(fake.url, load_profile(str(profile)), minutes=1, every_s=0.2, tolerance=0.5, seen=cut)
    assert "tells nothing of a vLLM" in document["ended"]
    assert len(seen) == 1


def test_an_idle_server_is_not_judged(profile):
    with serving() as fake:
        document = watch(fake.url, load_profile(str(profile)), minutes=0.03, every_s=0.1, tolerance=0.5)
    assert document["ratio"] is None
    assert not document["drifted"]
    assert document["idle_windows"] > 2


LIMITS = EngineLimits(max_num_seqs=10, max_num_batched_tokens=100, block_size=10, num_blocks=100, max_model_len=500)
COST = StepCost.affine(100, 10, base_s=0.01, token_s=0.001, kv_read_s=1e-5, mixed_token_s=0.002)


def test_a_window_by_hand():
    """100 steps in 2 s: 400 tokens of 4 sequences that read 500 tokens; 192 prompt tokens fill two steps of 100."""
    before = ServerMetrics(4, 0, 0.4, 1_000, 5_000, 0, 50, 7, 0)
    after = ServerMetrics(4, 0, 0.6, 1_192, 5_400, 0, 150, 17, 0)
    window = Expected(COST, LIMITS).window(before, after, 10.0, 2.0)
    decode_s, mixed_s = 0.014 + 1e-5 * 500, 0.01 + 0.2 + 1e-5 * 500
    assert window.batch == 4
    assert window.kv_share == pytest.approx(0.5)
    assert window.ratio == pytest.approx(2.0 / (98 * decode_s + 2 * mixed_s))
    # 5 requests a second of 19.2 and 40 tokens: B = 200 step(B), step = 0.01 + 0.001 B + 1e-5 B (19.2 + 20).
    assert window.predicted_batch == pytest.approx(2 / (1 - 0.2 - 200e-5 * 39.2), rel=1e-6)
    assert window.predicted_kv_share == pytest.approx(window.predicted_batch * 39.2 / 1000)


def test_windows_in_which_it_was_idle_or_tells_too_little_count_for_nothing():
    busy = ServerMetrics(4, 0, 0.4, 1_000, 5_000, 0, 50, 7, 0)
    later = replace(busy, output_tokens=5_400, steps=150)
    expected = Expected(COST, LIMITS)
    assert expected.window(busy, later, 1, 1) is not None
    for other in (
        replace(later, running=0),
        replace(later, steps=50),
        replace(later, kv_share=None),
        replace(later, output_tokens=4_000),
    ):
        assert expected.window(busy, other, 1, 1) is None


def window(ratio: float) -> Window:
    return Window(0, 1, 10, 100, 100 * ratio, 1, None, 0.1, None)


@pytest.mark.parametrize(
    ("ratios", "drifted"),
    [
        ([2.0] * 4, False),
        ([1.0] * 5, False),
        ([2.0] * 5, True),
        ([0.5] * 5, True),
        ([1.0, 1.0, 2.0, 1.0, 2.0], False),
        ([1.0] * 9 + [2.0] * 3, True),
        ([1.24] * 5, False),
        ([1 / 1.24] * 5, False),
        ([1.26] * 5, True),
    ],
)
def test_drift_needs_the_median_of_the_last_windows(ratios, drifted):
    middle, found = drift([window(ratio) for ratio in ratios], 0.25)
    assert found == drifted
    assert (middle is None) == (len(ratios) < DECIDING)


def test_metrics_of_several_engines_are_added_and_others_are_none():
    text = 'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} 4\n'
    assert read_metrics(text) == ServerMetrics(running=7)
    assert read_metrics("python_gc_total 3\n") is None
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the parser says
        read_metrics("{{{ 3\n")


def test_a_failure_is_not_lost_among_many_requests(tmp_path):
    with serving(fault="500") as fake, pytest.raises(EngineFailed, match="says 500"):
        measure_server(fake.url, tmp_path / "m", minutes=0.001, stated={"max_num_seqs": 8})

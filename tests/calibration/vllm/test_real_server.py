"""A real vLLM server on loopback: measured by its clients, fitted, judged, and watched under load."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest

from rollsim.calibration.measured import fit, open_measurement
from rollsim.cli.app import main
from rollsim.traces.errors import BadInput
from tests.calibration.vllm.timing import FACTOR_OF_TWO

pytestmark = pytest.mark.slow
SEQS = 8
LIMITS = ("--max-num-seqs", str(SEQS), "--max-num-batched-tokens", "256")


@pytest.fixture(scope="module")
def server(vllm_venv, vllm_python, tmp_path_factory):
    """Its address; started as its users do, with a model whose steps take long enough for clients to see them."""
    model = vllm_venv / "models" / "qwen3"
    vllm_python(
        "import pathlib, sys; from rollsim.calibration.local_models import make_random_model as make; "
        "make(pathlib.Path(sys.argv[1]), 'qwen3')",
        str(model),
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--host", "127.0.0.1",
        "--port", str(port),
        "--skip-tokenizer-init", "--enforce-eager", "--kv-cache-memory-bytes", "67108864", "--block-size", "32",
        "--max-model-len", "1024", *LIMITS,
    ]  # fmt: skip
    settings = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1"}  # fmt: skip
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("wb") as opened:
        process = subprocess.Popen(
            [vllm_venv / "bin" / "python", *words],
            env=os.environ | settings,
            stdout=opened,
            stderr=opened,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 240
    while True:
        try:
            httpx.get(f"{url}/health", timeout=2, trust_env=False).raise_for_status()
            break
        except httpx.HTTPError:
            assert process.poll() is None, log.read_text()[-2_000:]
            assert time.monotonic() < deadline, log.read_text()[-2_000:]
            time.sleep(0.5)
    yield url
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def measured(server, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("measured") / "server"
    with pytest.raises(SystemExit) as end:
        main(
            [
                "calibrate",
                "measure",
                server,
                "--out",
                str(folder),
                "--minutes",
                "0.2",
                *LIMITS,
                "--memory-gib",
                "8",
                "--quiet",
            ]
        )
    assert end.value.code == 0
    return folder


@pytest.fixture
def rollsim(capsys):
    def run(*words):
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        return end.value.code, *capsys.readouterr()

    return run


def test_the_server_tells_its_version_its_blocks_and_the_shape_of_a_local_model(measured):
    manifest = json.loads((measured / "manifest.json").read_text())
    assert (manifest["engine"]["name"], manifest["engine"]["version"]) == ("vllm", "0.32.0")
    assert (manifest["limits"]["block_size"], manifest["limits"]["max_model_len"]) == (32, 1024)
    # 64 MiB hold blocks of 32 tokens of 8 layers with 4 x 64 keys and values in two bytes; one is the null block.
    assert manifest["limits"]["num_blocks"] == (1 << 26) // (32 * 8 * 2 * 4 * 64 * 2) - 1
    assert manifest["model"]["layers"] == 8
    assert manifest["assumed"] == []


@pytest.fixture(scope="module")
def profile(server, measured) -> Path:
    """A profile of it. Four processes share the cores: where they starve the streams, that is said, and skipped."""
    out = measured.parent / "server.json"
    try:
        fit(open_measurement(measured)).write(out)
    except BadInput as error:
        if "all at once" not in str(error):
            raise
        pytest.skip(f"too busy a machine: {error}")
    return out


def test_a_profile_of_it_predicts_what_it_has_not_seen(rollsim, measured, profile):
    """A client's times are not the CPU's, and four processes share the cores: held is the order of magnitude."""
    code, out, _ = rollsim("calibrate", "validate", measured, "--profile", profile, "--tolerance", 9, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["noise"] is not None
    assert document["worst_makespan_error"] < 1.5 * FACTOR_OF_TWO or document["noise"] > 0.3
    assert document["r2"] > 0 or document["noise"] > 0.3


def test_it_is_watched_under_load(rollsim, server):
    """What the metrics say needs no stream: any profile will do, and this one is far off."""
    stop = threading.Event()
    model = httpx.get(f"{server}/v1/models", trust_env=False).json()["data"][0]["id"]
    body = {"model": model, "prompt": list(range(100, 140)), "max_tokens": 60, "ignore_eos": True}

    def ask() -> None:
        with httpx.Client(trust_env=False) as client:
            while not stop.is_set():
                client.post(f"{server}/v1/completions", json=body, timeout=60).raise_for_status()

    clients = [threading.Thread(target=ask) for _ in range(SEQS)]
    for client in clients:
        client.start()
    time.sleep(1)
    words = ("--profile", "llama-3.1-8b-b200-tp2-fp8", "--minutes", 0.25, "--every", 1, "--json")
    for _ in range(3):
        code, out, err = rollsim("calibrate", "watch", server, *words)
        document = json.loads(out)
        if document["ratio"] is not None:
            break
    stop.set()
    for client in clients:
        client.join()
    if document["ratio"] is None:
        pytest.skip("too busy a machine: the server tells its metrics too seldom")
    assert code == 3, err
    windows = document["windows"]
    assert len(windows) >= 5
    assert all(1 <= window["batch"] <= SEQS for window in windows)
    assert all(window["tokens_per_s"] > 0 for window in windows)
    assert any(window["predicted_batch"] is not None for window in windows)
    assert document["drifted"]
    assert document["ratio"] > 1.25

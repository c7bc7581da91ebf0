"""The decoder in plain torch computes what transformers does, in blocks anywhere, and is measured like an engine."""

import json
import subprocess

import pytest

from rollsim.calibration.local_models import write_config
from rollsim.simulator.judge_report import judge
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.recording import read_recordings
from tests.calibration.vllm.timing import FACTOR_OF_TWO

pytestmark = pytest.mark.slow

LOGITS = """
import json, pathlib, random, sys, torch, transformers
from rollsim.calibration.torch_decoder import Chunk, TorchDecoder, load_weights, read_shape
kind, folder = sys.argv[1], pathlib.Path(sys.argv[2])
config = transformers.AutoConfig.for_model(
    kind, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, vocab_size=128, max_position_embeddings=256, tie_word_embeddings=kind == 'qwen2',
    bos_token_id=1, eos_token_id=2)
torch.manual_seed(0)
model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
for weight in model.parameters():
    # Norms of ones and biases of zeros would not be missed.
    torch.nn.init.normal_(weight, 1.0 if weight.dim() == 1 else 0.0, 0.3)
model.save_pretrained(folder)
shape = read_shape(folder)
weights, own = load_weights(folder, shape, 'cpu', torch.float32, 0)
rng, size = random.Random(1), 4
free = list(range(60))
rng.shuffle(free)
decoder = TorchDecoder(shape, weights, 60, size)
ids = {name: [rng.randrange(128) for _ in range(length)] for name, length in (('a', 23), ('b', 9), ('c', 30))}
done, blocks, worst = dict.fromkeys(ids, 0), {name: [] for name in ids}, 0.0
# Prompts in chunks beside requests that decode: a batch of everything.
for step in ({'a': 10}, {'a': 5, 'b': 8}, {'a': 7, 'b': 1, 'c': 12}, {'a': 1, 'c': 17}, {'c': 1}):
    chunks = []
    for name, count in step.items():
        while len(blocks[name]) * size < done[name] + count:
            blocks[name].append(free.pop())
        chunks.append(Chunk(ids[name][done[name] : done[name] + count], done[name], list(blocks[name])))
        done[name] += count
    logits = decoder.step(chunks)
    for row, name in zip(logits, step):
        with torch.no_grad():
            real = model(torch.tensor([ids[name][: done[name]]])).logits[0, -1]
        worst = max(worst, float((row - real).abs().max() / real.abs().max()))
print(json.dumps({'worst': worst, 'own': own, 'done': done}))
"""


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_it_computes_what_transformers_does(vllm_python, tmp_path, kind):
    """Chunked prompts, mixed steps, blocks in any order, grouped queries, biases, norms of queries and keys, ties."""
    found = json.loads(vllm_python(LOGITS, kind, str(tmp_path / "model")).splitlines()[-1])
    assert found["own"]
    assert found["done"] == {"a": 23, "b": 9, "c": 30}
    assert found["worst"] < 1e-5


@pytest.fixture(scope="module")
def measured(tmp_path_factory, vllm_rollsim):
    """A model of a shape alone, with random weights. Gives the folder and the document of `quick`."""
    place = tmp_path_factory.mktemp("torch")
    model = write_config(place, "llama")
    words = [str(model), "--backend", "torch", "--out", str(place / "m"), "--minutes", "0.1", "--json"]
    command = [*vllm_rollsim, "calibrate", "quick", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 3), done.stderr
    return place / "m", json.loads(done.stdout)


def test_its_steps_are_those_of_the_simulator(measured):
    folder, _ = measured
    recordings = [
        recording for file in sorted((folder / "recordings").iterdir()) for recording in read_recordings(file)
    ]
    assert [row["name"] for row in judge(recordings)["recordings"] if not row["equal"]] == []
    assert any(recording.preemptions for recording in recordings)
    assert any(len(chunks) for recording in recordings for chunks in recording.chunks)
    assert any(result["finish_reason"] == "abort" for recording in recordings for result in recording.results.values())


def test_its_profile_is_labelled_torch_and_predicts(measured):
    folder, document = measured
    profile = load_profile(str(folder / "profile.json"))
    assert profile.engine.name == "torch"
    assert "torch" in profile.name
    assert "no inference engine" in profile.source.name
    assert document["worst_makespan_error"] < FACTOR_OF_TWO
    assert document["r2"] > 0.5
    assert {claim.part: claim.grade for claim in profile.claims}["host time"] == "measured"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["engine"]["name"] == "torch"
    assert manifest["model"]["weights"] == "random"
    extras = manifest["extras"]
    assert extras["abort_resume"]["resume_s"] > 0
    assert extras["weight_reload"]["reload_s"] > 0
    assert extras["pause_recompute"]["first_step_after_s"] > extras["pause_recompute"]["plain_step_s"] / 2
    assert "takes no speculative_config" in extras["speculation_ngram"]["not_timed"]


@pytest.mark.parametrize(
    ("config", "words", "said"),
    [
        ({"model_type": "mamba"}, (), "knows llama, qwen2, qwen3, and not mamba"),
        ({"model_type": "llama"}, (), "does not say hidden_size"),
        (None, (), "holds no model"),
        ({}, ("--kv-cache-memory-bytes", "1000"), "do not hold one sequence"),
        ({}, ("--enforce-eager",), "takes no enforce_eager"),
        ({}, ("--dtype", "fp8"), "and not in fp8"),
        ({"rope_scaling": {"rope_type": "llama3"}}, (), "plain rotary positions"),
    ],
)
def test_what_it_does_not_take_is_bad_input(vllm_rollsim, tmp_path, config, words, said):
    model = write_config(tmp_path, "llama")
    file = model / "config.json"
    if config is None:
        file.unlink()
    elif "model_type" in config:
        file.write_text(json.dumps(config))
    else:
        file.write_text(json.dumps(json.loads(file.read_text()) | config))
    done = subprocess.run(
        [*vllm_rollsim, "calibrate", "measure", str(model), "--backend", "torch", "--out", str(tmp_path / "m"), *words],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr

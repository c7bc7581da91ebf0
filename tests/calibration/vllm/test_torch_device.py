"""Train steps, transfers and the whole session on a real torch, on this machine's CPU: the code that a GPU runs."""

import json
import subprocess

import pytest

from rollsim.calibration.local_models import write_config
from rollsim.simulator.profile_store import load_profile
from tests.calibration.vllm.timing import FACTOR_OF_TWO

pytestmark = pytest.mark.slow

PACKED = """
import json, pathlib, sys, torch, transformers
from rollsim.calibration.torch_decoder import TorchDecoder, load_weights, read_shape
folder = pathlib.Path(sys.argv[1])
config = transformers.AutoConfig.for_model(
    'qwen3', hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, vocab_size=128, max_position_embeddings=256, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
torch.manual_seed(0)
model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
model.save_pretrained(folder)
weights, _ = load_weights(folder, read_shape(folder), 'cpu', torch.float32, 0)
lengths, ids = [17, 5, 30], torch.randint(0, 128, (52,))
found = {}
for recompute in (True, False):
    for weight in weights.values():
        weight.requires_grad_(True)
        weight.grad = None
    decoder = TorchDecoder(read_shape(folder), weights, 1, 1)
    logits = decoder.packed(ids, lengths, recompute=recompute) @ decoder.head.T
    loss = torch.nn.functional.cross_entropy(logits, ids)
    loss.backward()
    model.zero_grad()
    real = torch.cat([model(part[None]).logits[0] for part in ids.split(lengths)])
    torch.nn.functional.cross_entropy(real, ids).backward()
    name = 'model.layers.0.self_attn.q_proj.weight'
    theirs = dict(model.named_parameters())[name].grad
    found[str(recompute)] = [float((logits - real).abs().max()), float((weights[name].grad - theirs).abs().max())]
print(json.dumps(found))
"""


def test_packed_sequences_have_the_logits_and_gradients_of_transformers(vllm_python, tmp_path):
    found = json.loads(vllm_python(PACKED, str(tmp_path / "model")).splitlines()[-1])
    assert set(found) == {"True", "False"}
    assert all(error < 1e-5 for errors in found.values() for error in errors)


@pytest.fixture(scope="module")
def session(tmp_path_factory, vllm_rollsim):
    """The whole of it, for a shape that is quick. Gives the folder, the command and its document."""
    place = tmp_path_factory.mktemp("device")
    model = write_config(place, "llama")
    words = [*vllm_rollsim, "calibrate", "gpu", str(model), "--out", str(place / "m"), "--minutes", "0.3"]
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode in (0, 3), done.stderr
    return place / "m", words, json.loads(done.stdout)


def test_one_command_measures_all_that_a_profile_takes(session):
    folder, _, document = session
    profile = load_profile(str(folder / "profile.json"))
    assert profile.engine.name == "torch"
    assert profile.train.mfu is not None
    assert profile.train.mfu.grade == "fitted"
    assert document["validation"]["worst_makespan_error"] < FACTOR_OF_TWO
    assert document["training"]["errors"]["gradients, held out"]["median"] < FACTOR_OF_TWO
    assert document["training"]["optimizer_bytes_per_s"] > 1e8
    broadcast = document["transfers"]["timings"]["broadcast"]
    assert broadcast["backend"] == "gloo"
    assert broadcast["bytes_per_s"] > 1e7
    # Copies of a CPU are no cluster's.
    assert document["transfers"]["sync"] == {}


def test_what_is_done_is_not_done_again(session):
    folder, words, _ = session
    (folder / "sync.json").unlink()
    kept = {name: (folder / "steps" / "recordings" / f"{name}.json").read_bytes() for name in ("reference", "mixed")}
    trained = json.loads((folder / "train.json").read_text())["points"]
    done = subprocess.run([*words[:-1], "0.1"], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode in (0, 3), done.stderr
    assert (folder / "sync.json").is_file()
    assert json.loads((folder / "train.json").read_text())["points"] == trained
    for name, content in kept.items():
        assert (folder / "steps" / "recordings" / f"{name}.json").read_bytes() == content
    assert "TRAIN STEPS" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80

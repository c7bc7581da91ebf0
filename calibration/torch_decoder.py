"""A decoder in plain torch with paged KV: what a step computes, without an inference engine around it.

Llama, Qwen2 and Qwen3: RMSNorm, rotary positions, grouped queries, SwiGLU. Keys and values lie in blocks that a table
of each request names; attention gathers them. One batch holds prompt chunks and decoding requests alike: products with
weights are made for all tokens together, attention by request, of decoding requests all at once.
"""

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rollsim.calibration.engine_faults import EngineUnfit

_KINDS = ("llama", "qwen2", "qwen3")
_NEEDED = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size",
)  # fmt: skip


def import_torch() -> Any:
    """Import torch.

    Raises
    ------
    EngineUnfit
        It is not installed.
    """
    try:
        importlib.import_module("torch.utils.checkpoint")
        return importlib.import_module("torch")
    except ImportError as error:
        raise EngineUnfit(f"torch cannot be imported ({error}); install the extra torch of rollsim") from error


@dataclass(frozen=True)
class Shape:
    """Shape of a decoder, from the config.json of a model."""

    kind: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_position: int
    epsilon: float
    theta: float
    tied: bool
    dtype: str


def read_shape(folder: Path) -> Shape:
    """Read ``config.json``.

    Raises
    ------
    EngineUnfit
        It is missing or damaged, or the model is none of those that are known here.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kind = config["model_type"]
        if kind not in _KINDS:
            raise EngineUnfit(f"the torch backend knows {', '.join(_KINDS)}, and not {kind}")
        if absent := [name for name in _NEEDED if not isinstance(config.get(name), int)]:
            raise EngineUnfit(f"{folder / 'config.json'} does not say {', '.join(absent)}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineUnfit(f"{folder / 'config.json'} cannot be read: {error or type(error).__name__}") from error
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise EngineUnfit(f"the torch backend knows plain rotary positions, and not {rope}")
    return Shape(
        kind=kind,
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        vocab=config["vocab_size"],
        max_position=config.get("max_position_embeddings", 4_096),
        epsilon=config.get("rms_norm_eps", 1e-6),
        theta=config.get("rope_theta") or rope.get("rope_theta", 10_000.0),
        tied=bool(config.get("tie_word_embeddings", False)),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "bfloat16"),
    )


def weight_shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Shape of every weight, under the names that checkpoints have."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (shape.vocab, shape.hidden),
        "model.norm.weight": (shape.hidden,),
    }
    if not shape.tied:
        found["lm_head.weight"] = (shape.vocab, shape.hidden)
    for i in range(shape.layers):
        layer = f"model.layers.{i}"
        found |= {
            f"{layer}.input_layernorm.weight": (shape.hidden,),
            f"{layer}.post_attention_layernorm.weight": (shape.hidden,),
            f"{layer}.self_attn.q_proj.weight": (queries, shape.hidden),
            f"{layer}.self_attn.k_proj.weight": (keys, shape.hidden),
            f"{layer}.self_attn.v_proj.weight": (keys, shape.hidden),
            f"{layer}.self_attn.o_proj.weight": (shape.hidden, queries),
            f"{layer}.mlp.gate_proj.weight": (shape.intermediate, shape.hidden),
            f"{layer}.mlp.up_proj.weight": (shape.intermediate, shape.hidden),
            f"{layer}.mlp.down_proj.weight": (shape.hidden, shape.intermediate),
        }
        if shape.kind == "qwen3":
            found |= {f"{layer}.self_attn.{name}_norm.weight": (shape.head_dim,) for name in "qk"}
        if shape.kind == "qwen2":
            widths = {"q": queries, "k": keys, "v": keys}
            found |= {f"{layer}.self_attn.{name}_proj.bias": (width,) for name, width in widths.items()}
    return found


def load_weights(folder: Path, shape: Shape, device: str, dtype: Any, seed: int) -> tuple[dict[str, Any], bool]:
    """Return weights by name, and whether they were in the folder; else they are random.

    Raises
    ------
    EngineUnfit
        Those in the folder are not those of its config, or cannot be read.
    """
    torch = import_torch()
    wanted = weight_shapes(shape)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        generator = torch.Generator(device).manual_seed(seed)
        made = {}
        for name, size in wanted.items():
            weight = torch.empty(size, device=device, dtype=dtype)
            made[name] = weight.fill_(1.0) if len(size) == 1 else weight.normal_(0.0, 0.02, generator=generator)
        return made, False
    try:
        load = importlib.import_module("safetensors.torch").load_file
        found = {name: weight for file in files for name, weight in load(file, device=device).items()}
    except ImportError as error:
        raise EngineUnfit("safetensors is not installed; reading weights needs the extra torch of rollsim") from error
    except Exception as error:
        raise EngineUnfit(f"the weights in {folder} cannot be read: {error}") from error
    wrong = [name for name, size in wanted.items() if name not in found or tuple(found[name].shape) != size]
    if wrong:
        raise EngineUnfit(f"{len(wrong)} weights in {folder} are not those of its config.json, as {wrong[0]}")
    return {name: found[name].to(dtype) for name in wanted}, True


@dataclass(frozen=True)
class Chunk:
    """Tokens of one request in a step: their ids, how many came before them, and the blocks that hold them all."""

    ids: Sequence[int]
    before: int
    blocks: Sequence[int]


class TorchDecoder:
    """Weights and KV blocks on a device.

    Parameters
    ----------
    shape, weights
        Of the model.
    num_blocks, block_size
        Of the KV.
    """

    def __init__(self, shape: Shape, weights: dict[str, Any], num_blocks: int, block_size: int) -> None:
        self._torch = torch = import_torch()
        self.shape, self.weights, self._size = shape, weights, block_size
        embedding = weights["model.embed_tokens.weight"]
        self.device, self.dtype = embedding.device, embedding.dtype
        cache = (shape.layers, 2, num_blocks * block_size, shape.kv_heads, shape.head_dim)
        self._cache = torch.zeros(cache, device=self.device, dtype=self.dtype)
        self._cosines, self._sines = self._rotations(shape.max_position)

    def _rotations(self, positions: int) -> tuple[Any, Any]:
        torch, width = self._torch, self.shape.head_dim
        rates = self.shape.theta ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
        angles = torch.outer(torch.arange(positions, dtype=torch.float32), rates).repeat(1, 2)
        return angles.cos().to(self.device), angles.sin().to(self.device)

    def step(self, chunks: Sequence[Chunk]) -> Any:
        """Compute the tokens of a step; array [chunks, vocab] of logits after the last token of each."""
        torch = self._torch
        with torch.inference_mode():
            plan = _Plan(torch, chunks, self._size, self.device)
            x = self.weights["model.embed_tokens.weight"][plan.ids]
            for i in range(self.shape.layers):
                x = self._layer(x, i, partial(self._paged, i=i, plan=plan))
            return torch.nn.functional.linear(self._norm(x[plan.last], "model.norm.weight"), self.head)

    @property
    def head(self) -> Any:
        """Weights that make logits, [vocab, hidden]."""
        return self.weights["model.embed_tokens.weight" if self.shape.tied else "lm_head.weight"]

    def packed(self, ids: Any, lengths: Sequence[int], *, recompute: bool) -> Any:
        """Hidden states after the last norm, [tokens, hidden], of whole sequences that lie after one another.

        Parameters
        ----------
        ids : tensor [tokens]
        lengths
            Of the sequences; they add up to the tokens.
        recompute
            Keep only what enters a layer, for the backward pass.
        """
        torch = self._torch
        positions = torch.cat([torch.arange(length, device=self.device) for length in lengths])
        x = self.weights["model.embed_tokens.weight"][ids]
        for i in range(self.shape.layers):
            layer = partial(self._layer, i=i, attend=partial(self._causal, positions=positions, lengths=lengths))
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) if recompute else layer(x)
        return self._norm(x, "model.norm.weight")

    def _norm(self, x: Any, name: str) -> Any:
        wide = x.float()
        wide = wide * self._torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.shape.epsilon)
        return self.weights[name] * wide.to(x.dtype)

    def _linear(self, x: Any, name: str) -> Any:
        weights = self.weights
        return self._torch.nn.functional.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def _layer(self, x: Any, i: int, attend: Callable[..., Any]) -> Any:
        name = f"model.layers.{i}"
        normed = self._norm(x, f"{name}.input_layernorm.weight")
        x = x + attend(normed, name=f"{name}.self_attn")
        normed = self._norm(x, f"{name}.post_attention_layernorm.weight")
        gate = self._torch.nn.functional.silu(self._linear(normed, f"{name}.mlp.gate_proj"))
        return x + self._linear(gate * self._linear(normed, f"{name}.mlp.up_proj"), f"{name}.mlp.down_proj")

    def _project(self, x: Any, name: str, positions: Any) -> tuple[Any, Any, Any]:
        """Queries, keys and values of tokens at positions, [tokens, heads, head_dim] each, turned to where they are."""
        shape, parts = self.shape, []
        for part, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads)):
            y = self._linear(x, f"{name}.{part}_proj").unflatten(-1, (heads, shape.head_dim))
            if shape.kind == "qwen3" and part != "v":
                y = self._norm(y, f"{name}.{part}_norm.weight")
            if part != "v":
                left, right = y.chunk(2, -1)
                turned = self._torch.cat((-right, left), -1)
                cosines, sines = self._cosines[positions, None], self._sines[positions, None]
                y = (y * cosines + turned * sines).to(y.dtype)
            parts.append(y)
        return parts[0], parts[1], parts[2]

    def _causal(self, x: Any, name: str, positions: Any, lengths: Sequence[int]) -> Any:
        attend = self._torch.nn.functional.scaled_dot_product_attention
        parts = [part.transpose(0, 1)[None].split(list(lengths), 2) for part in self._project(x, name, positions)]
        out = [attend(q, k, v, is_causal=True, enable_gqa=True) for q, k, v in zip(*parts, strict=True)]
        return self._linear(self._torch.cat(out, 2)[0].transpose(0, 1).flatten(-2), f"{name}.o_proj")

    def _paged(self, x: Any, name: str, i: int, plan: "_Plan") -> Any:
        torch, cache = self._torch, self._cache[i]
        queries, keys, values = self._project(x, name, plan.positions)
        cache[0, plan.slots], cache[1, plan.slots] = keys, values
        out = torch.empty_like(queries)
        attend = torch.nn.functional.scaled_dot_product_attention
        if plan.decoding is not None:
            rows, read, mask = plan.decoding
            k, v = (cache[part, read].transpose(1, 2) for part in (0, 1))
            q = queries[rows].unsqueeze(2)
            out[rows] = attend(q, k, v, attn_mask=mask, enable_gqa=True).squeeze(2)
        for rows, read, mask in plan.chunks:
            q = queries[rows].transpose(0, 1)[None]
            k, v = (cache[part, read].transpose(0, 1)[None] for part in (0, 1))
            out[rows] = attend(q, k, v, attn_mask=mask, enable_gqa=True)[0].transpose(0, 1)
        return self._linear(out.flatten(-2), f"{name}.o_proj")


class _Plan:
    """Where the tokens of a step lie: in the batch, in their sequences, and in the KV blocks."""

    def __init__(self, torch: Any, chunks: Sequence[Chunk], size: int, device: Any) -> None:
        ids, positions, slots, last, single = [], [], [], [], []
        self.chunks: list[tuple[slice, Any, Any]] = []
        for chunk in chunks:
            begin, end = len(ids), len(ids) + len(chunk.ids)
            total = chunk.before + len(chunk.ids)
            own = [block * size + k for block in chunk.blocks for k in range(size)][:total]
            ids += chunk.ids
            positions += range(chunk.before, total)
            slots += own[chunk.before :]
            last.append(end - 1)
            if len(chunk.ids) == 1:
                single.append((begin, own))
            else:
                ahead = torch.arange(total, device=device) <= torch.arange(chunk.before, total, device=device)[:, None]
                self.chunks.append((slice(begin, end), torch.tensor(own, device=device), ahead))
        self.ids, self.positions, self.slots, self.last = (
            torch.tensor(values, device=device) for values in (ids, positions, slots, last)
        )
        self.decoding = None
        if single:
            longest = max(len(own) for _, own in single)
            read = torch.tensor([own + [0] * (longest - len(own)) for _, own in single], device=device)
            held = torch.tensor([len(own) for _, own in single], device=device)
            mask = (torch.arange(longest, device=device) < held[:, None])[:, None, None]
            self.decoding = (torch.tensor([row for row, _ in single], device=device), read, mask)

"""Facts about models and GPUs, read from the two files of `catalogue/` (each states its sources)."""

from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict

from rollsim.traces.errors import BadInput, Fault, closest

CATALOGUE = Path(__file__).parent / "catalogue"

F = TypeVar("F", bound=BaseModel)


class ModelFacts(BaseModel):
    """Shape of a decoder-only transformer, in the words of its config.json; a mixture of experts if `experts` > 0.

    `intermediate` is the width of one expert in a mixture of experts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    hf_name: str
    table: str
    check: str
    stand_in: str | None = None
    note: str = ""
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    experts: int = 0
    experts_per_token: int = 0
    vocab: int
    max_position: int
    qk_norm: bool

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the input and the output embedding; none of these models ties them."""
        return 2 * self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters, counted from the shape; equal to the numbers that the checkpoints state."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        norms = 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        mlp = 3 * self.hidden * self.intermediate * max(1, self.experts) + self.hidden * self.experts
        return self.layers * (attention + norms + mlp) + self.hidden + self.embedding_parameters


class GpuDefaults(BaseModel):
    """Scheduler limits that vLLM chooses on a GPU: of ``LLM()``, and of the server where they differ."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_num_seqs: int
    max_num_batched_tokens: int
    server_max_num_batched_tokens: int


class GpuFacts(BaseModel):
    """A GPU: total memory as the runtime reports it, peak rates, and what vLLM chooses on it by default.

    `flops` [FLOP/s] are those of dense matrix products, by the precision of their inputs; `runtime_name` is what the
    CUDA runtime calls it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    runtime_name: str
    system: str
    memory_gib: float
    flops: dict[Literal["bf16", "fp8"], float]
    memory_bytes_per_s: float
    graph_ceiling_tokens: int
    defaults: GpuDefaults


def _read(file: str, kind: type[F]) -> dict[str, F]:
    entries: dict[str, Any] = yaml.safe_load((CATALOGUE / file).read_text(encoding="utf-8"))
    return {key: kind.model_validate(value) for key, value in entries.items()}


@cache
def models() -> dict[str, ModelFacts]:
    """All models of the catalogue by short name."""
    return _read("models.yaml", ModelFacts)


@cache
def gpus() -> dict[str, GpuFacts]:
    """All GPUs of the catalogue by short name."""
    return _read("gpus.yaml", GpuFacts)


def _find(entries: dict[str, F], name: str, what: str) -> F:
    if name in entries:
        return entries[name]
    raise BadInput(Fault(what, "", name, ", ".join(entries), closest(name, entries), f"unknown {what}"))


def model(name: str) -> ModelFacts:
    """Return the model of that short name; `BadInput` with the closest one if there is none."""
    return _find(models(), name, "model")


def gpu(name: str) -> GpuFacts:
    """Return the GPU of that short name; `BadInput` with the closest one if there is none."""
    return _find(gpus(), name, "gpu")


def gpu_of_profile(name: str) -> GpuFacts:
    """Return the GPU that a profile calls so; `BadInput` with the closest one if there is none."""
    return _find({gpu.name: gpu for gpu in gpus().values()}, name, "GPU")


def model_of_profile(hf_name: str) -> ModelFacts | None:
    """Return the model of that name on the hub; None if the catalogue has none."""
    return next((model for model in models().values() if model.hf_name == hf_name), None)

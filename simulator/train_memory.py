"""Memory of one train GPU: what a step needs, what does not fit and what would help, what stays while it generates.

    weights, gradients, optimizer   2, 4 and 12 bytes a parameter: bf16; fp32; fp32 weights and two Adam moments
        fully sharded               each over all GPUs of the pool
        optimizer sharded           weights and gradients over model_parallel, the optimizer over all
    activations                     tokens * layers * bytes of a layer, and of one layer as much again for gradients;
                                    with recomputation all layers but that one keep 2 hidden, their input
    logits                          tokens * vocab * (2 + 4 + 4): bf16, fp32 copy, its gradient; none where the head
                                    and the loss are one kernel

A layer keeps, in bf16, the inputs of both norms, of the projections and of the MLP; queries, keys, values and the
attention's output; gate, up, their activation and their product for each chosen expert. That is Korthikanti et al.
(arXiv 2205.05198, section 4.1) without dropout masks and without the attention matrix, which flash attention never
stores; for a model that the catalogue does not have it is their 34 hidden. Tensor-parallel GPUs share activations, with
sequence parallelism; the first of several pipeline stages holds a micro-batch for each, which is all layers' worth.
"""

from dataclasses import dataclass
from typing import Literal

from rollsim.simulator.facts import model_of_profile
from rollsim.simulator.memory import GIB
from rollsim.simulator.profile_parts import Claim, Model
from rollsim.simulator.train_cost import TrainCost
from rollsim.traces.errors import Fault

WEIGHT_BYTES, GRADIENT_BYTES, ADAM_BYTES = 2, 4, 12
LOGIT_BYTES = 2 + 4 + 4
# Assumed: the rest is the CUDA context and buffers of NCCL. No margin: only what surely does not fit is refused.
USABLE = 0.97
# The form was up to this much below the peaks that docs/costs.md shows.
LOW_BY = 0.19

CLAIM = Claim(
    part="memory of a train GPU", grade="computed", how=f"was up to {LOW_BY:.0%} below four published peaks (prime-rl)"
)
Offload = Literal[True, False, "optimizer"]


@dataclass(frozen=True)
class TrainMemory:
    """Bytes on one GPU during a train step."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float

    @property
    def state(self) -> float:
        """What lasts from step to step."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """All of it."""
        return self.state + self.activations + self.logits

    def offloaded(self, offload: Offload) -> float:
        """What shared GPUs move to the host before they generate; gradients are dropped, not moved."""
        return self.optimizer + (0.0 if offload == "optimizer" else self.weights) if offload else 0.0

    def kept(self, offload: Offload) -> float:
        """What stays on shared GPUs while they generate."""
        return self.weights + self.optimizer - self.offloaded(offload)


def layer_bytes(model: Model) -> float:
    """Bytes of activations that one layer keeps for each token."""
    shape = model_of_profile(model.hf_name)
    if shape is None:
        return 34.0 * model.hidden
    attention = 2 * shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)
    return 8.0 * shape.hidden + attention + 8 * shape.intermediate * max(1, shape.experts_per_token)


def train_memory(
    cost: TrainCost, longest_tokens: int, *, critic: bool = False, reference: bool = False, fused_logits: bool = True
) -> TrainMemory:
    """Memory of a step.

    Parameters
    ----------
    cost : TrainCost
    longest_tokens : int
        Longest sequence; a micro-batch holds at least that.
    critic, reference : bool
        Whether a critic (its whole state) and a reference (its weights) stand on the same GPUs.
    fused_logits : bool
        Whether the output head and the loss are one kernel.
    """
    model, full = cost.model, cost.sharding == "full"
    copy_gpus = cost.gpus if full else cost.model_parallel
    models = 2 if critic else 1
    tokens = max(cost.max_tokens_per_gpu, longest_tokens)
    tensor = cost.model_parallel // cost.pipeline
    layer = layer_bytes(model)
    kept = 2 * layer + (model.layers - 1) * (2 * model.hidden if cost.recompute else layer)
    shape = model_of_profile(model.hf_name)
    return TrainMemory(
        weights=(models + reference) * WEIGHT_BYTES * model.parameters / copy_gpus,
        gradients=models * GRADIENT_BYTES * model.parameters / copy_gpus,
        optimizer=models * ADAM_BYTES * model.parameters / cost.gpus,
        activations=tokens * kept / tensor,
        logits=0.0 if shape is None or fused_logits else tokens * shape.vocab * LOGIT_BYTES / tensor,
    )


def memory_faults(memory: TrainMemory, cost: TrainCost, file: str) -> list[Fault]:
    """Say what does not fit a GPU, why, and what would help; empty if it fits."""
    limit = USABLE * cost.gpu.memory_gib
    if memory.total / GIB <= limit:
        return []
    names = ("weights", "gradients", "optimizer", "activations", "logits")
    parts = ", ".join(f"{name} {getattr(memory, name) / GIB:.1f}" for name in names)
    message = f"a train step takes {memory.total / GIB:.1f} GiB a GPU of {limit:.1f} usable ({parts})"
    if memory.state / GIB > limit:
        given = f"{cost.gpus} for training"
        helps = ["more train GPUs", *(["sharding full"] if cost.sharding == "optimizer" else [])]
        return [Fault(file, "cluster.gpus", given, " or ".join(helps), message=message)]
    helps = ["fewer tokens", "more train GPUs", "a larger model_parallel"]
    helps += [*(["fused_logits"] if memory.logits else []), *([] if cost.recompute else ["recompute"])]
    return [Fault(file, "train.max_tokens_per_gpu", cost.max_tokens_per_gpu, " or ".join(helps), message=message)]


def memory_notes(memory: TrainMemory, cost: TrainCost) -> list[str]:
    """Say that a step which fits may not in truth; empty if there is room enough."""
    share = memory.total / GIB / (USABLE * cost.gpu.memory_gib)
    if share < 1 - LOW_BY:
        return []
    message = (
        f"a train step fills {share:.0%} of a GPU's memory by a form that was up to {LOW_BY:.0%} below published peaks"
    )
    return [message]

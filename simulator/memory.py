"""KV blocks that fit a GPU, after weights and what the engine keeps for itself; and the CUDA-graph sizes.

    kv_bytes = utilisation * total - weights / tp - activations - graphs - other

vLLM measures the last three in a profiling run (0.32.0, v1/worker/gpu_worker.py, determine_available_memory); here they
are estimated. Where an engine logged its number of blocks, that number belongs in the profile instead.
"""

from dataclasses import dataclass

from rollsim.simulator.facts import GpuFacts, ModelFacts

GIB = 1024**3

# Bytes per element. The tables' fp8 rows keep the KV cache in bf16: their attention times equal those of bf16.
WEIGHT_BYTES = {"bf16": 2, "fp8": 1}
ACTIVATION_BYTES = 2
KV_BYTES = 2

# Assumed. Logs of 8B models on one GPU show 0.23 to 0.67 GiB for graphs and 0.03 to 0.3 GiB outside of PyTorch.
GRAPH_GIB = 0.5
OTHER_GIB = 0.25
# Buffers of NCCL by tensor-parallel size: aiconfigurator-core 0.12.0, systems/*.yaml, misc.nccl_mem.
NCCL_BYTES = {1: 0, 2: 358_612_992, 4: 411_041_792, 8: 411_041_792}


@dataclass(frozen=True)
class MemoryPlan:
    """Where the memory of one GPU goes, in bytes; `num_blocks` are usable KV blocks (the null block is left out)."""

    budget_bytes: int
    weight_bytes: int
    activation_bytes: int
    other_bytes: int
    bytes_per_token: int
    block_size: int

    @property
    def kv_bytes(self) -> int:
        """Bytes left for KV; negative if the weights do not fit."""
        return self.budget_bytes - self.weight_bytes - self.activation_bytes - self.other_bytes

    @property
    def num_blocks(self) -> int:
        """Usable blocks: what fits, less the null block of the engine."""
        return max(0, self.kv_bytes // (self.bytes_per_token * self.block_size) - 1)

    @property
    def kv_tokens(self) -> int:
        """Tokens that the usable blocks hold."""
        return self.num_blocks * self.block_size


def kv_bytes_per_token(model: ModelFacts, tp: int) -> int:
    """Bytes of KV per token on one GPU: layers x KV heads on the rank x head_dim x 2 (K and V) x 2 bytes.

    With more ranks than KV heads every rank keeps one head.
    """
    return model.layers * max(1, model.kv_heads // tp) * model.head_dim * 2 * KV_BYTES


def weight_bytes(model: ModelFacts, dtype: str, tp: int) -> int:
    """Bytes of weights on one GPU; embeddings stay in bf16 where the linear layers are fp8."""
    linear = (model.parameters - model.embedding_parameters) * WEIGHT_BYTES[dtype]
    return (linear + model.embedding_parameters * ACTIVATION_BYTES) // tp


def activation_bytes(model: ModelFacts, tp: int, max_num_batched_tokens: int, max_num_seqs: int) -> int:
    """Peak of the profiling run: one layer at the full token budget, then sampling at the full batch.

    Four hidden-sized tensors (residual, input and output of attention and MLP) and three of the MLP width (gate, up and
    their product) per token; logits in bf16, a copy in fp32 and its probabilities per sequence. A mixture of experts
    holds them for every chosen expert. Estimate of this project; a test checks it against a log of the engine.
    """
    width = model.intermediate * max(1, model.experts_per_token) // tp
    per_token = (4 * model.hidden + 3 * width) * ACTIVATION_BYTES
    per_sequence = model.vocab * (2 + 4 + 4)
    return max_num_batched_tokens * per_token + max_num_seqs * per_sequence


def plan(
    model: ModelFacts,
    gpu: GpuFacts,
    *,
    dtype: str,
    tp: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    utilization: float,
    block_size: int,
) -> MemoryPlan:
    """Memory plan of one GPU of a tensor-parallel group; see the head of this file for the formula."""
    return MemoryPlan(
        budget_bytes=int(utilization * gpu.memory_gib * GIB),
        weight_bytes=weight_bytes(model, dtype, tp),
        activation_bytes=activation_bytes(model, tp, max_num_batched_tokens, max_num_seqs),
        other_bytes=int((GRAPH_GIB + OTHER_GIB) * GIB) + NCCL_BYTES[tp],
        bytes_per_token=kv_bytes_per_token(model, tp),
        block_size=block_size,
    )


def graph_sizes(max_num_seqs: int, max_num_batched_tokens: int, ceiling_tokens: int) -> tuple[int, ...]:
    """Token counts for which vLLM captures CUDA graphs by default; a step is padded to the next one.

    1, 2, 4, every 8th below 256, every 16th up to min(2 x max_num_seqs, ceiling, max_num_batched_tokens), and
    max_num_seqs and max_num_batched_tokens themselves where they lie below that. Steps above the largest run unpadded.
    Source: vLLM 0.32.0, config/vllm.py, _set_cudagraph_sizes, without speculation.
    """
    largest = min(2 * max_num_seqs, ceiling_tokens, max_num_batched_tokens)
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16), max_num_batched_tokens, max_num_seqs}
    return tuple(sorted(size for size in sizes if size <= largest))

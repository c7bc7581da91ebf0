"""What a train step costs: passes counted in FLOPs, weights, gradients and optimizer in bytes.

    pass        = weight FLOPs / (rank GPUs * peak * mfu) + attention FLOPs / (rank GPUs * peak * attention_mfu)
    gradients   = pass * (3 + recompute), as slow as the slowest data-parallel rank
                + that * (pipeline - 1) / micro-batches                      stages that fill and drain
                + exposed * 6 P / model_parallel * micro-batches * (1 - 1/ranks) / link    fully sharded weights:
                                                                             gathered twice, gradients reduced once
    update      = exposed * 4 P / model_parallel * (1 - 1/ranks) / link      optimizer sharded: reduced, gathered
                + 30 P / (GPUs * memory rate)                                fp32 weights, Adam moments
    a pass without gradients (log-probabilities, reference, values) gathers fully sharded weights once.

P: all parameters, 2 bytes each. Backward costs two forward passes, recomputation one more (Korthikanti et al., arXiv
2205.05198, section 4.1 and appendix A). The pipeline share is that of 1F1B (Narayanan et al., arXiv 2104.04473, section
2.2). A rank cuts its sequences into the fewest micro-batches that hold their tokens. `train_flops` counts the FLOPs,
`train_rates` holds the free parameters.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rollsim.simulator.facts import GpuFacts
from rollsim.simulator.profile_parts import Model
from rollsim.simulator.train_flops import attention_flops, deal, weight_flops
from rollsim.simulator.train_rates import Rates

# Read the fp32 gradient; read and write fp32 weight and two moments; write the bf16 weight: 4 + 24 + 2.
OPTIMIZER_BYTES = 30
MICRO_BATCH_TOKENS = 16384

Sharding = Literal["full", "optimizer"]


@dataclass(frozen=True)
class Gradients:
    """Seconds of forward and backward passes.

    Attributes
    ----------
    busy_s, slack_s : float
        Of an average rank, and what it waits for the slowest.
    bubble_s : float
        Of stages that wait for their first and after their last micro-batch.
    communication_s : float
        Of the exchange of weights and gradients that nothing hides.
    """

    busy_s: float
    slack_s: float
    bubble_s: float = 0.0
    communication_s: float = 0.0


@dataclass(frozen=True)
class TrainCost:
    """Costs of a train pool.

    Attributes
    ----------
    model : Model
    gpu : GpuFacts
    gpus : int
        GPUs of the pool.
    model_parallel, pipeline : int
        GPUs that hold one copy of the model together; stages among them.
    recompute : bool
        Activations are computed again in the backward pass.
    rates : Rates
    sharding : {"full", "optimizer"}
        What is sharded over data-parallel ranks: weights, gradients and optimizer (FSDP, ZeRO-3), or the last alone.
    max_tokens_per_gpu : int
        Tokens of a micro-batch (verl's ppo_max_token_len_per_gpu); a longer sequence is one of its own.
    dtype : {"bf16", "fp8"}
        Precision of the products with weights.
    """

    model: Model
    gpu: GpuFacts
    gpus: int
    model_parallel: int
    recompute: bool
    rates: Rates
    sharding: Sharding = "full"
    pipeline: int = 1
    max_tokens_per_gpu: int = MICRO_BATCH_TOKENS
    dtype: Literal["bf16", "fp8"] = "bf16"

    @property
    def ranks(self) -> int:
        """Data-parallel ranks."""
        return self.gpus // self.model_parallel

    def forward_s(self, tokens: np.ndarray) -> float:
        """Seconds of a pass without gradients, as slow as the slowest rank."""
        dealt = deal(tokens, self.ranks)
        slowest_s = float(self._pass_s(dealt, self.rates.forward_mfu).max())
        micro_batches = self._micro_batches(dealt)
        return slowest_s * self._stretch(micro_batches) + self._gathers_s(2, micro_batches)

    def gradients(self, tokens: np.ndarray) -> Gradients:
        """Seconds of the forward and backward passes over these sequences."""
        dealt = deal(tokens, self.ranks)
        busy_s = self._pass_s(dealt, self.rates.mfu) * (3 + self.recompute)
        slowest_s, mean_s = float(busy_s.max()), float(busy_s.mean())
        micro_batches = self._micro_batches(dealt)
        return Gradients(
            busy_s=mean_s,
            slack_s=slowest_s - mean_s,
            bubble_s=slowest_s * (self._stretch(micro_batches) - 1),
            communication_s=self._gathers_s(6, micro_batches),
        )

    @property
    def communication_s(self) -> float:
        """Seconds that an update waits for the exchange of gradients; none where each micro-batch has done it."""
        if self.sharding == "full":
            return 0.0
        moved = 4.0 * self.model.parameters / self.model_parallel * (1 - 1 / self.ranks)
        return self.rates.exposed_communication * moved / self.rates.link_bytes_per_s

    @property
    def optimizer_s(self) -> float:
        """Seconds of the optimizer in one update."""
        return OPTIMIZER_BYTES * self.model.parameters / (self.gpus * self.gpu.memory_bytes_per_s)

    def _pass_s(self, dealt: np.ndarray, mfu: float) -> np.ndarray:
        """Seconds that each rank computes in a forward pass."""
        weights = weight_flops(self.model, dealt.sum(axis=0)) / (self.gpu.flops[self.dtype] * mfu)
        attention = attention_flops(self.model, dealt).sum(axis=0) / (self.gpu.flops["bf16"] * self.rates.attention_mfu)
        return (weights + attention) / self.model_parallel

    def _micro_batches(self, dealt: np.ndarray) -> int:
        """Micro-batches of every rank: as many as the one with most tokens needs."""
        tokens = max(self.max_tokens_per_gpu, int(dealt.max(initial=1)))
        return -(-int(dealt.sum(axis=0).max()) // tokens)

    def _stretch(self, micro_batches: int) -> float:
        """By how much stages that fill and drain stretch a pass."""
        return 1 + (self.pipeline - 1) / max(1, micro_batches)

    def _gathers_s(self, bytes_per_parameter: int, micro_batches: int) -> float:
        """Seconds of the exchange of sharded weights and gradients that nothing hides."""
        if self.sharding == "optimizer":
            return 0.0
        moved = bytes_per_parameter * self.model.parameters / self.model_parallel * (1 - 1 / self.ranks)
        return self.rates.exposed_communication * moved * micro_batches / self.rates.link_bytes_per_s

"""What a train step costs: passes counted in FLOPs, the optimizer and the gradients in bytes.

    forward(L)  = 2 P L + 2 layers heads head_dim L**2                       FLOPs of a causal sequence of L tokens
    update      = max over data-parallel ranks of sum forward(L) * (3 + recompute) / (rank GPUs * peak * mfu)
                + exposed * 4 P / model_parallel * (1 - 1/dp) / link         bf16 gradients, ring: 2 x 2 bytes
                + 30 P / (GPUs * memory rate)                                fp32 weights, Adam moments
    a pass without gradients (log-probabilities, reference) is forward(L) alone, on the whole batch.

P: parameters that work on a token. The backward pass costs two forward ones, recomputation of activations a third
(Korthikanti et al., arXiv 2205.05198, section 4.1 and appendix A). `Rates` holds the free parameters.
"""

from dataclasses import dataclass

import numpy as np

from rollsim.simulator.facts import models
from rollsim.simulator.gpu_rates import GpuRates
from rollsim.simulator.profile_parts import Grade, Model

OPTIMIZER_BYTES = 30
STATE_BYTES = 18  # bf16 weights and gradients, fp32 weights, two moments, a gradient copy shared out


@dataclass(frozen=True)
class Rates:
    """Free parameters, each with its grade in `GRADES`.

    Attributes
    ----------
    mfu, forward_mfu : float
        Share of the peak that a pass with and without gradients reaches; `mfu` from two runs of prime-rl.
    link_bytes_per_s : float
        Rate at which one GPU exchanges gradients.
    exposed : float
        Share of that exchange that the backward pass does not hide.
    """

    mfu: float = 0.4
    forward_mfu: float = 0.4
    link_bytes_per_s: float = 50e9
    exposed: float = 0.3


GRADES: dict[str, Grade] = {
    "mfu": "fitted",
    "forward_mfu": "assumed",
    "link_bytes_per_s": "assumed",
    "exposed": "assumed",
}


@dataclass(frozen=True)
class Gradients:
    """Seconds of forward and backward passes: of an average rank, and what it waits for the slowest."""

    busy_s: float
    slack_s: float


def token_parameters(model: Model) -> int:
    """Parameters that work on one token: all but the input embedding and the experts that were not chosen."""
    shape = next((m for m in models().values() if m.hf_name == model.hf_name), None)
    if shape is None:
        return model.parameters
    idle = shape.layers * 3 * shape.hidden * shape.intermediate * max(0, shape.experts - shape.experts_per_token)
    return shape.parameters - idle - shape.vocab * shape.hidden


def deal(weights: np.ndarray, ranks: int) -> np.ndarray:
    """Sum of weights of each rank: sorted, dealt forth and back, as frameworks balance their data-parallel ranks."""
    order = np.sort(weights)[::-1]
    padded = np.zeros(-(-len(order) // ranks) * ranks)
    padded[: len(order)] = order
    rows = padded.reshape(-1, ranks)
    rows[1::2] = rows[1::2, ::-1].copy()
    return rows.sum(axis=0)


@dataclass(frozen=True)
class TrainCost:
    """Costs of a train pool.

    Attributes
    ----------
    model : Model
    gpu : GpuRates
    gpus : int
        GPUs of the pool.
    model_parallel : int
        GPUs that hold one copy of the model together.
    recompute : bool
        Activations are computed again in the backward pass.
    rates : Rates
    """

    model: Model
    gpu: GpuRates
    gpus: int
    model_parallel: int
    recompute: bool
    rates: Rates

    @property
    def ranks(self) -> int:
        """Data-parallel ranks."""
        return self.gpus // self.model_parallel

    @property
    def state_bytes(self) -> float:
        """Bytes of weights, gradients and optimizer on one GPU, sharded over all."""
        return STATE_BYTES * self.model.parameters / self.gpus

    def forward_flops(self, tokens: np.ndarray) -> np.ndarray:
        """FLOPs of a forward pass over each sequence of so many tokens."""
        length = tokens.astype(float)
        attention = 2.0 * self.model.layers * self.model.heads * self.model.head_dim
        return (2.0 * token_parameters(self.model) + attention * length) * length

    def forward_s(self, tokens: np.ndarray) -> float:
        """Seconds of a pass without gradients, as slow as the slowest rank."""
        rank = self.model_parallel * self.gpu.flops * self.rates.forward_mfu
        return float(deal(self.forward_flops(tokens), self.ranks).max() / rank)

    def gradients(self, tokens: np.ndarray) -> Gradients:
        """Seconds of the forward and backward passes over these sequences."""
        rank = self.model_parallel * self.gpu.flops * self.rates.mfu
        busy_s = deal(self.forward_flops(tokens), self.ranks) * (3 + self.recompute) / rank
        mean_s = float(busy_s.mean())
        return Gradients(mean_s, float(busy_s.max()) - mean_s)

    @property
    def communication_s(self) -> float:
        """Seconds that an update waits for the exchange of gradients."""
        gradients = 4.0 * self.model.parameters / self.model_parallel * (1 - 1 / self.ranks)
        return self.rates.exposed * gradients / self.rates.link_bytes_per_s

    @property
    def optimizer_s(self) -> float:
        """Seconds of the optimizer in one update."""
        return OPTIMIZER_BYTES * self.model.parameters / (self.gpus * self.gpu.memory_bytes)

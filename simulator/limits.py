"""Limits of one engine instance: what vLLM calls its scheduler and cache configuration."""

from dataclasses import dataclass
from typing import Literal

# Tokens per decode step of one sequence: the kernel counts progress in whole 1/1024 tokens, 32 bits wide.
MAX_RATE = 1024
# What the prefix cache follows: one hold for each block of each running sequence. This many take 3 GB.
_MAX_HOLDS = 2**28


@dataclass(frozen=True)
class EngineLimits:
    """Scheduler and KV limits of one replica, in vLLM's own names and units.

    Attributes
    ----------
    max_num_seqs : int
        Largest number of running requests per rank.
    max_num_batched_tokens : int
        Token budget of one step and rank, shared by decode and prefill [tokens].
    block_size : int
        KV block [tokens].
    num_blocks : int
        Usable KV blocks per rank: vLLM's ``num_gpu_blocks`` less the null block.
    max_model_len : int
        Largest prompt + response [tokens].
    long_prefill_token_threshold : int
        Cap on the tokens one request may be given in a step; 0 is off.
    long_prefill_adaptive : bool
        Raise that cap to budget // requests when the engine is nearly empty.
    watermark_blocks : int
        Blocks an admission must leave free while something runs.
    prefix_caching, chunked_prefill : bool
        As in vLLM; both on by default.
    policy : {"fcfs", "priority"}
        Order of the waiting queue and choice of the preemption victim.
    async_scheduling : bool
        Two batches in flight (vLLM's default on GPUs).
    num_speculative_tokens : int
        Placeholder drafts given to a request admitted with one token to compute.
    lockstep_ranks : int
        Scheduler ranks that step together (attention data parallelism); 1 for plain TP.

    References
    ----------
    vLLM 0.32.0, ``config/scheduler.py`` and ``config/cache.py``.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_blocks: int
    max_model_len: int
    long_prefill_token_threshold: int = 0
    long_prefill_adaptive: bool = False
    watermark_blocks: int = 0
    prefix_caching: bool = True
    chunked_prefill: bool = True
    policy: Literal["fcfs", "priority"] = "fcfs"
    async_scheduling: bool = False
    num_speculative_tokens: int = 0
    lockstep_ranks: int = 1


def most_seqs(max_model_len: int, block_size: int, lockstep_ranks: int = 1) -> int:
    """Largest max_num_seqs for which all blocks of all running sequences can be followed by the prefix cache."""
    blocks = -(-max_model_len // block_size) + 1
    return _MAX_HOLDS // (blocks * lockstep_ranks)

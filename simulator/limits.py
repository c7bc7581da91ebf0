"""Limits of one engine instance: what vLLM calls its scheduler and cache configuration."""

from dataclasses import dataclass
from typing import Literal


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

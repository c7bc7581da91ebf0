"""The cost of one engine step, as arrays the kernel can index.

    gpu = table[tokens] + max over ranks ( kv_read[B] * U + prefill_attn * A )
    t   = max(host, gpu) with asynchronous scheduling, host + gpu without

with B decoding sequences on a rank, U the KV tokens they read and A the token pairs of its prefill chunks.
`Profile.step_cost` builds a `StepCost` from a profile; `StepCost.affine` builds one from a few numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RankLoad = tuple[int, float, float]

MAX_CONTEXT_KNOTS = 8


@dataclass(frozen=True, eq=False)
class StepCost:
    """Seconds of one step of a lockstep domain, by what was scheduled in it.

    Attributes
    ----------
    host_s : float
        Seconds the scheduler and the model runner need on the CPU per step.
    overlap : bool
        True: the host works while the GPU does (asynchronous scheduling), the step lasts as long as the longer of
        the two. False: one after the other.
    decode_s, mixed_s : array [max_num_batched_tokens * D + 1], seconds
        Time that depends on the scheduled tokens alone, without and with a prefill-scheduled request in the step.
        Index 0 is a step that schedules nothing and holds 0.
    kv_read_s : array [max_num_seqs + 1], seconds per KV token
        Time to read one token of KV when that many sequences decode on the rank.
    prefill_attn_s : float
        Seconds per token pair; a chunk of n tokens after c computed ones makes n * (c + n / 2) pairs.
    context_knots, context_slopes, context_offsets : array [K], K <= 8
        KV tokens that a sequence of x tokens reads: ``offset_j + slope_j * x`` for ``knots_j <= x < knots_{j+1}``.
        Full attention is one knot at 0 with slope 1 and offset 0.
    """

    host_s: float
    overlap: bool
    decode_s: Floats
    mixed_s: Floats
    kv_read_s: Floats
    prefill_attn_s: float
    context_knots: Floats
    context_slopes: Floats
    context_offsets: Floats

    def __post_init__(self) -> None:
        for name in ("decode_s", "mixed_s", "kv_read_s", "context_knots", "context_slopes", "context_offsets"):
            array = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            if array.ndim != 1 or array.size == 0:
                raise ValueError(f"{name}: shape {array.shape}; a non-empty vector is needed")
            if not np.isfinite(array).all() or (array < 0).any():
                raise ValueError(f"{name}: every value must be finite and >= 0")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        for name in ("host_s", "prefill_attn_s"):
            value = float(getattr(self, name))
            if not (np.isfinite(value) and value >= 0):
                raise ValueError(f"{name}: {value}; must be finite and >= 0")
            object.__setattr__(self, name, value)
        if self.decode_s.size != self.mixed_s.size:
            raise ValueError(f"decode_s has {self.decode_s.size} entries, mixed_s {self.mixed_s.size}; must be equal")
        if self.decode_s[0] != 0 or self.mixed_s[0] != 0:
            raise ValueError("decode_s[0] and mixed_s[0] must be 0: nothing was scheduled")
        knots = self.context_knots
        if not (knots.size == self.context_slopes.size == self.context_offsets.size <= MAX_CONTEXT_KNOTS):
            raise ValueError(f"context_*: three vectors of one length <= {MAX_CONTEXT_KNOTS} are needed")
        if knots[0] != 0 or (np.diff(knots) <= 0).any():
            raise ValueError("context_knots: must start at 0 and increase strictly")

    @classmethod
    def affine(
        cls,
        max_tokens: int,
        max_num_seqs: int,
        *,
        host_s: float = 0.0,
        overlap: bool = False,
        base_s: float = 0.01,
        token_s: float = 0.0,
        mixed_token_s: float | None = None,
        kv_read_s: float = 0.0,
        prefill_attn_s: float = 0.0,
    ) -> StepCost:
        """Cost with constant coefficients: ``base_s + token_s * tokens`` and full attention.

        Parameters
        ----------
        max_tokens : int
            Most tokens of a step over all ranks, ``max_num_batched_tokens * lockstep_ranks``.
        mixed_token_s : float, optional
            Seconds per token of a step with prefill; `token_s` where not given.
        """
        tokens = np.arange(max_tokens + 1, dtype=np.float64)
        decode_s = base_s + token_s * tokens
        mixed_s = base_s + (token_s if mixed_token_s is None else mixed_token_s) * tokens
        decode_s[0] = mixed_s[0] = 0.0
        return cls(
            host_s=host_s,
            overlap=overlap,
            decode_s=decode_s,
            mixed_s=mixed_s,
            kv_read_s=np.full(max_num_seqs + 1, kv_read_s),
            prefill_attn_s=prefill_attn_s,
            context_knots=np.zeros(1),
            context_slopes=np.ones(1),
            context_offsets=np.zeros(1),
        )

    def kv_tokens_read(self, context_tokens: float) -> float:
        """KV tokens effectively read by a sequence whose context holds `context_tokens` (0 <= real)."""
        j = int(np.searchsorted(self.context_knots, context_tokens, side="right")) - 1
        return float(self.context_offsets[j] + self.context_slopes[j] * context_tokens)

    def gpu_s(self, tokens: int, decode_only: bool, ranks: Sequence[RankLoad]) -> float:
        """Seconds on the GPU; see `step_s`."""
        dense_s = (self.decode_s if decode_only else self.mixed_s)[tokens]
        attention_s = max(
            (self.kv_read_s[batch] * kv_tokens + self.prefill_attn_s * pairs for batch, kv_tokens, pairs in ranks),
            default=0.0,
        )
        return float(dense_s + attention_s)

    def step_s(self, tokens: int, decode_only: bool, ranks: Sequence[RankLoad]) -> float:
        """Seconds of one step.

        Parameters
        ----------
        tokens : int
            Tokens scheduled in the step, summed over ranks, drafts included.
        decode_only : bool
            No request of any rank was scheduled as prefill.
        ranks : sequence of (B, U, A)
            Decoding sequences, KV tokens read (`kv_tokens_read`, summed) and prefill token pairs of each rank.
        """
        gpu_s = self.gpu_s(tokens, decode_only, ranks)
        return max(self.host_s, gpu_s) if self.overlap else self.host_s + gpu_s

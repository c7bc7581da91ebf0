"""A profile: the fitted cost model of one model on one GPU type, with where it came from and how wrong it is."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from rollsim.simulator import profile_parts as parts
from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.memory import graph_sizes
from rollsim.simulator.step_tables import decode_steps, kv_read_s, mixed_steps
from rollsim.traces.errors import BadInput, Fault

SCHEMA_VERSION = 1
NAME = r"[a-z0-9][a-z0-9._-]*"


@dataclass(frozen=True)
class BiasBand:
    """Factors that turn a simulated time into what measurements suggest: 10 % low, median, 10 % high.

    `n` measured end-to-end points stand behind it; `match` and `origin` say which.
    """

    low: float
    median: float
    high: float
    n: int
    match: str
    origin: str


class Profile(parts.Part):
    """See the fields' classes in `profile_parts`; what `train` and `sync` leave out has a default beside its cost."""

    schema_version: Literal[1]
    name: Annotated[str, Field(pattern=f"^{NAME}$")]
    model: parts.Model
    gpu: parts.Gpu
    parallelism: parts.Parallelism
    engine: parts.Engine
    scheduling: Literal["sync", "async"]
    defaults: parts.Defaults
    kv: parts.Kv
    costs: parts.Costs
    train: parts.Train = parts.Train()
    sync: parts.Sync = parts.Sync()
    fit: parts.Fit
    fitted_range: parts.FittedRange
    source: parts.Source
    bias: parts.Bias | None = None
    claims: tuple[parts.Claim, ...]
    cautions: tuple[str, ...] = ()

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV blocks of one rank hold."""
        return self.kv.num_blocks * self.defaults.block_size

    def limits(self, *, server: bool = False) -> EngineLimits:
        """Engine limits at the defaults: those of ``LLM()``, or of the server; change single ones with `replace`."""
        tokens = self.defaults.server_max_num_batched_tokens if server else self.defaults.max_num_batched_tokens
        return EngineLimits(
            max_num_seqs=self.defaults.max_num_seqs,
            max_num_batched_tokens=tokens,
            block_size=self.defaults.block_size,
            num_blocks=self.kv.num_blocks,
            max_model_len=self.defaults.max_model_len,
            async_scheduling=self.scheduling == "async",
            lockstep_ranks=self.parallelism.lockstep_ranks,
        )

    def graph_sizes(self, limits: EngineLimits) -> tuple[int, ...]:
        """Sizes a step is padded to: the stated ones, or the engine's default under these limits."""
        if self.defaults.graph_sizes is not None:
            return tuple(size for size in self.defaults.graph_sizes if size <= limits.max_num_batched_tokens)
        if self.defaults.graph_ceiling_tokens == 0:
            return ()
        return graph_sizes(limits.max_num_seqs, limits.max_num_batched_tokens, self.defaults.graph_ceiling_tokens)

    def step_cost(self, limits: EngineLimits) -> StepCost:
        """Expand the tables for an engine with these limits.

        Raises
        ------
        BadInput
            If the limits ask for another number of lockstep ranks than the tables were taken with.
        """
        ranks = self.parallelism.lockstep_ranks
        if limits.lockstep_ranks != ranks:
            message = "its tables were taken with another number of ranks stepping together"
            raise BadInput(Fault(self.name, "lockstep_ranks", limits.lockstep_ranks, str(ranks), None, message))
        sizes = self.graph_sizes(limits)
        max_tokens = limits.max_num_batched_tokens * ranks
        decode, prefill, context = self.costs.decode, self.costs.prefill, self.costs.context
        return StepCost(
            host_s=self.costs.host_s,
            overlap=limits.async_scheduling,
            decode_s=decode_steps(decode, prefill, sizes, max_tokens),
            mixed_s=mixed_steps(decode, prefill, sizes, max_tokens),
            kv_read_s=kv_read_s(decode, np.arange(limits.max_num_seqs + 1)),
            prefill_attn_s=prefill.attn_s,
            context_knots=np.asarray(context.knots),
            context_slopes=np.asarray(context.slopes),
            context_offsets=np.asarray(context.offsets),
        )

    def bias_band(self) -> BiasBand | None:
        """Factors for simulated times, from the known signed bias of the source; None if it has none."""
        if self.bias is None:
            return None
        low, median, high = (1 / (1 + error) for error in (self.bias.p90, self.bias.median, self.bias.p10))
        return BiasBand(low, median, high, self.bias.n, self.bias.match, self.bias.origin)

    def outside_range(
        self,
        *,
        max_batch: int = 0,
        max_context_tokens: int = 0,
        max_kv_tokens: int = 0,
        max_prefill_tokens: int = 0,
        max_prefill_context_tokens: int = 0,
    ) -> list[str]:
        """List what of a run lies above the fitted range, one sentence each; empty if nothing does.

        Parameters
        ----------
        max_batch, max_context_tokens, max_kv_tokens : int
            Most decoding sequences on a rank, longest context of one, most KV tokens read in a step.
        max_prefill_tokens, max_prefill_context_tokens : int
            Most tokens of a step with prefill, longest context that a prefill chunk attends to.
        """
        fitted = self.fitted_range
        seen = (
            ("decode batch", max_batch, fitted.decode_batch[1], "sequences"),
            ("decode context", max_context_tokens, fitted.decode_context_tokens[1], "tokens"),
            ("KV read in a step", max_kv_tokens, fitted.decode_kv_tokens[1], "tokens"),
            ("step with prefill", max_prefill_tokens, fitted.prefill_tokens[1], "tokens"),
            ("prefill context", max_prefill_context_tokens, fitted.prefill_context_tokens[1], "tokens"),
        )
        return [
            f"{what}: up to {value:,} {unit}, fitted up to {limit:,}: extrapolated"
            for what, value, limit, unit in seen
            if value > limit
        ]

    def write(self, path: Path) -> None:
        """Write the profile, whole or not at all, as JSON that `load_profile` reads back to an equal profile."""
        partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
        try:
            partial.write_text(self.model_dump_json(indent=1, exclude_none=True) + "\n", encoding="utf-8")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

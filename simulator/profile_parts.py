"""The parts of a profile, as pydantic models: frozen, no unknown keys, units in the names."""

import itertools
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from rollsim.simulator.costs import MAX_CONTEXT_KNOTS

Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
P = TypeVar("P", bound="Part")
Grade = Literal["measured", "fitted", "predicted", "extrapolated", "computed", "assumed"]


class Part(BaseModel):
    """Base of all parts: cannot be changed, refuses unknown keys and numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _same_length_and_rising(part: P, key: str, columns: tuple[str, ...]) -> P:
    keys = getattr(part, key)
    for column in columns:
        if len(getattr(part, column)) != len(keys):
            raise ValueError(f"{column}: {len(getattr(part, column))} values for {len(keys)} of {key}")
    for i, (earlier, later) in enumerate(itertools.pairwise(keys)):
        if later <= earlier:
            raise ValueError(f"{key} must increase strictly, but [{i}] is {earlier} and [{i + 1}] is {later}")
    return part


class Model(Part):
    """The served model: name on the hub, shape, and the precision of weights and KV cache."""

    hf_name: str
    table_name: str
    layers: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    hidden: PositiveInt
    parameters: PositiveInt
    dtype: Literal["bf16", "fp8"]
    kv_dtype: Literal["bf16", "fp8"]
    note: str = ""


class Gpu(Part):
    """The GPU; `memory_gib` as the runtime reports it."""

    name: str
    memory_gib: PositiveFloat


class Parallelism(Part):
    """Ranks of one replica: tensor and expert parallel, and engines that step together."""

    tp: PositiveInt
    ep: PositiveInt
    lockstep_ranks: PositiveInt

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tp * self.lockstep_ranks


class Engine(Part):
    """The engine whose kernels were timed, and the version of vLLM whose defaults and rules are used.

    `torch` is the plain decoder of `rollsim.calibration.torch_decoder`, and no inference engine.
    """

    name: Literal["vllm", "torch"]
    timed_version: str
    rules_version: str

    @property
    def rules(self) -> str:
        """Whose scheduler it is."""
        return f"vllm {self.rules_version}"


class Defaults(Part):
    """What the engine does where the user says nothing; `max_num_batched_tokens` of ``LLM()`` and of the server."""

    max_num_seqs: PositiveInt
    max_num_batched_tokens: PositiveInt
    server_max_num_batched_tokens: PositiveInt
    block_size: PositiveInt
    max_model_len: PositiveInt
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)]
    graph_ceiling_tokens: Count
    graph_sizes: tuple[PositiveInt, ...] | None = None


class Kv(Part):
    """Usable KV blocks per rank (null block left out) and how the number was obtained."""

    num_blocks: PositiveInt
    bytes_per_token: PositiveInt
    obtained: Literal["computed", "logged"]
    how: str


class DecodeTable(Part):
    """A decode step: ``dense_s[b] + kv_read_s[b] * U`` for batch ``batch[b]``, U KV tokens read in all."""

    batch: tuple[PositiveInt, ...] = Field(min_length=1)
    dense_s: tuple[Seconds, ...]
    kv_read_s: tuple[Seconds, ...]

    @model_validator(mode="after")
    def _columns(self) -> Self:
        return _same_length_and_rising(self, "batch", ("dense_s", "kv_read_s"))


class PrefillTable(Part):
    """A prefill step: ``dense_s[t] + attn_s * pairs`` for ``tokens[t]`` scheduled tokens."""

    tokens: tuple[PositiveInt, ...] = Field(min_length=1)
    dense_s: tuple[Seconds, ...]
    attn_s: Seconds

    @model_validator(mode="after")
    def _columns(self) -> Self:
        return _same_length_and_rising(self, "tokens", ("dense_s",))


class ContextFunction(Part):
    """KV tokens read by a sequence of x tokens: ``offsets[j] + slopes[j] * x`` from ``knots[j]`` on."""

    knots: tuple[Seconds, ...] = (0.0,)
    slopes: tuple[Seconds, ...] = (1.0,)
    offsets: tuple[Seconds, ...] = (0.0,)

    @model_validator(mode="after")
    def _columns(self) -> Self:
        if not 1 <= len(self.knots) <= MAX_CONTEXT_KNOTS:
            raise ValueError(f"knots: {len(self.knots)} given, there may be 1 to {MAX_CONTEXT_KNOTS}")
        if self.knots[0] != 0:
            raise ValueError(f"knots: the first must be 0, given {self.knots[0]}")
        return _same_length_and_rising(self, "knots", ("slopes", "offsets"))


class Costs(Part):
    """All that sets the time of a step. `host_s`: CPU time of a step, its own term."""

    host_s: Seconds
    decode: DecodeTable
    prefill: PrefillTable
    context: ContextFunction = ContextFunction()


class Value(Part):
    """A free parameter of a cost, what it rests on, and where it comes from."""

    value: Seconds
    grade: Grade
    how: str

    @classmethod
    def stated(cls, value: float) -> Self:
        """Return a value that a config states."""
        return cls(value=value, grade="assumed", how="stated in the config")

    def claim(self, part: str) -> "Claim":
        """Return what the part of a cost that has this value rests on."""
        return Claim(part=part, grade=self.grade, how=self.how)


class Rate(Value):
    """Something a second, more than 0."""

    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Efficiency(Value):
    """Share of a peak that is reached, more than 0."""

    value: Annotated[float, Field(gt=0, le=1)]


class Fraction(Value):
    """Share of something, 0 to 1."""

    value: Annotated[float, Field(ge=0, le=1)]


class Train(Part):
    """Free parameters of a train step, under the names of `train_rates.Rates`; None: the default of that file."""

    mfu: Efficiency | None = None
    attention_mfu: Efficiency | None = None
    forward_mfu: Efficiency | None = None
    link_bytes_per_s: Rate | None = None
    exposed_communication: Fraction | None = None


class SyncPath(Part):
    """A way for weights: seconds that do not depend on the size, and bytes/s of one copy."""

    fixed_s: Value
    bytes_per_s: Rate

    def seconds(self, weight_bytes: float) -> float:
        """Time of so many bytes [s]."""
        return self.fixed_s.value + weight_bytes / self.bytes_per_s.value


SyncName = Literal["colocated", "nccl", "reshard", "checkpoint_engine", "p2p", "delta", "disk"]
RelayName = Literal["relay_push", "relay_pull"]


class Sync(Part):
    """Weight sync by the name of its path, and the switch of roles; None: the default of `sync_cost`."""

    paths: dict[Literal[SyncName, RelayName], SyncPath] | None = None
    switch_fixed_s: Value | None = None
    host_bytes_per_s: Rate | None = None


class Errors(Part):
    """Relative errors of predicted against table times, over `n` rows.

    `p99` is the nearest rank, so it equals `worst` for n < 100; `signed_median` > 0 means too slow.
    """

    n: PositiveInt
    median: Seconds
    p99: Seconds
    worst: Seconds
    signed_median: float


class Covariance(Part):
    """Covariance of fitted values, in the order of `names`: [s^2], of factors [1]."""

    names: tuple[str, ...]
    matrix: tuple[tuple[float, ...], ...]

    @model_validator(mode="after")
    def _square(self) -> Self:
        if [len(row) for row in self.matrix] != [len(self.names)] * len(self.names):
            raise ValueError(f"matrix: needs {len(self.names)} rows of as many numbers")
        return self


class Fit(Part):
    """How well the tables reproduce the rows they were fitted to, and rows they were not."""

    decode: Errors
    decode_regions: dict[str, Errors]
    prefill: Errors
    held_out: dict[str, Errors]
    monotone_shift: Annotated[Seconds, Field(description="largest relative change of a dense time made for order")]
    join_gap: Annotated[float, Field(description="prefill over decode time at the smallest prefill, less 1")]
    rows_used: Count
    rows_dropped: Count
    covariance: Covariance | None = None


class FittedRange(Part):
    """Smallest and largest values among the rows fitted to."""

    decode_batch: tuple[int, int]
    decode_context_tokens: tuple[int, int]
    decode_kv_tokens: tuple[int, int]
    prefill_tokens: tuple[int, int]
    prefill_context_tokens: tuple[int, int]


class Source(Part):
    """Where the times come from."""

    name: str
    license: str
    file: str
    sha256: str


class Bias(Part):
    """Signed error of the source against measured end-to-end points: predicted / measured - 1, so < 0 is too fast."""

    median: float
    p10: float
    p90: float
    n: PositiveInt
    match: Literal["same model, engine and GPU", "same model and engine", "stand-in model, same engine", "the same run"]
    origin: str

    @model_validator(mode="after")
    def _order(self) -> Self:
        if not -1 < self.p10 <= self.median <= self.p90:
            given = f"given {self.p10}, {self.median}, {self.p90}"
            raise ValueError(f"must hold -1 < p10 <= median <= p90, {given}")
        return self


class Claim(Part):
    """What one part of the profile rests on."""

    part: str
    grade: Grade
    how: str

"""An engine's limits from a profile and what the user sets, under vLLM's own names, defaults and refusals.

Source of the rules: vLLM 0.32.0, ``config/scheduler.py``, ``engine/arg_utils.py`` and ``v1/core/kv_cache_utils.py``.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rollsim.simulator import facts, memory
from rollsim.simulator.limits import EngineLimits, most_seqs
from rollsim.simulator.profile import Profile
from rollsim.traces.errors import BadInput, Fault, closest

POLICIES = ("fcfs", "priority")

# The upper ends keep what is allocated per replica below a few GB; engines in use stay far below them.
RANGES = {
    "replicas": (1, 1_000_000),
    "max_num_seqs": (1, 65_536),
    "max_num_batched_tokens": (1, 4_194_304),
    "max_model_len": (2, 16_777_216),
    "block_size": (1, 65_536),
    "num_gpu_blocks_override": (2, 100_000_000),
    "long_prefill_token_threshold": (0, 16_777_216),
}


@dataclass(frozen=True)
class EngineOptions:
    """What the user sets; None leaves the profile's default.

    `num_gpu_blocks_override` counts as vLLM does: with the null block, which is never used.
    """

    replicas: int = 1
    server: bool = False
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    num_gpu_blocks_override: int | None = None
    gpu_memory_utilization: float | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    scheduling_policy: str | None = None
    async_scheduling: bool | None = None
    long_prefill_token_threshold: int | None = None

    def given(self) -> dict[str, object]:
        """Return what is set, by the flag that sets it."""
        default = EngineOptions()
        return {flag(name): value for name, value in vars(self).items() if value != getattr(default, name)}


@dataclass(frozen=True)
class Engine:
    """Limits to run with, how the KV blocks were obtained, and what the user should know of them."""

    limits: EngineLimits
    kv_how: str
    notes: tuple[str, ...]


def flag(name: str) -> str:
    """Return the command-line form of an option's name."""
    return "--" + name.replace("_", "-")


def in_section(faults: Iterable[Fault], file: str, section: str) -> list[Fault]:
    """Faults of flags as faults of a config's section that has settings of the same names."""

    def worded(text: str) -> str:
        off = re.sub(r"--no-([a-z-]+)", lambda found: f"{_key(found[1], section)}=false", text)
        return re.sub(r"--([a-z][a-z-]+)", lambda found: _key(found[1], section), off)

    return [
        replace(
            fault,
            file=file,
            place=worded(fault.file) if fault.file.startswith("--") else section,
            allowed=worded(fault.allowed),
            message=worded(fault.message),
        )
        for fault in faults
    ]


def _key(words: str, section: str) -> str:
    return f"{section}.{words.replace('-', '_')}"


def check_values(options: EngineOptions) -> list[Fault]:
    """Return a fault for each value that no engine could take."""
    faults = [
        Fault(flag(name), given=value, allowed=f"a whole number from {low} to {high}", message="out of range")
        for name, (low, high) in RANGES.items()
        if (value := getattr(options, name)) is not None and not low <= value <= high
    ]
    share = options.gpu_memory_utilization
    if share is not None and not 0 < share <= 1:
        allowed = "above 0, up to 1"
        faults.append(Fault("--gpu-memory-utilization", given=share, allowed=allowed, message="out of range"))
    policy = options.scheduling_policy
    if policy is not None and policy not in POLICIES:
        near = closest(policy, POLICIES)
        faults.append(Fault("--scheduling-policy", "", policy, ", ".join(POLICIES), near, "unknown policy"))
    if share is not None and options.num_gpu_blocks_override is not None:
        message = "each sets the number of KV blocks"
        allowed = "one of the two: --gpu-memory-utilization, --num-gpu-blocks-override"
        faults.append(Fault("--gpu-memory-utilization", allowed=allowed, message=message))
    return faults


def engine(profile: Profile, options: EngineOptions) -> Engine:
    """Resolve the limits.

    Raises
    ------
    BadInput
        With every fault: values out of range, and combinations that vLLM refuses.
    """
    faults = check_values(options)
    if faults:
        raise BadInput(faults)
    base = profile.limits(server=options.server)
    set_ = {name: value for name in _SAME_NAME if (value := getattr(options, name)) is not None}
    limits = replace(
        base,
        **set_,
        prefix_caching=options.enable_prefix_caching is not False,
        chunked_prefill=options.enable_chunked_prefill is not False,
        policy=options.scheduling_policy or base.policy,
    )
    limits = _follow(limits, options)
    blocks, how = _blocks(profile, limits, options)
    limits = replace(limits, num_blocks=blocks)
    faults = _refusals(limits, how)
    if faults:
        raise BadInput(faults)
    own = profile.defaults.max_model_len
    longer = f"max_model_len {limits.max_model_len:,} is above the {own:,} of the profile"
    return Engine(limits, how, (longer,) if limits.max_model_len > own else ())


_SAME_NAME = (
    "max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size", "async_scheduling",
    "long_prefill_token_threshold",
)  # fmt: skip


def _follow(limits: EngineLimits, options: EngineOptions) -> EngineLimits:
    """Let a default follow the value that was set beside it, as vLLM's own defaults do."""
    if options.max_num_batched_tokens is None:
        tokens = limits.max_num_batched_tokens
        if not limits.chunked_prefill:
            tokens = max(tokens, limits.max_model_len)
        return replace(limits, max_num_batched_tokens=min(tokens, limits.max_num_seqs * limits.max_model_len))
    if options.max_num_seqs is None:
        return replace(limits, max_num_seqs=min(limits.max_num_seqs, limits.max_num_batched_tokens))
    return limits


def _blocks(profile: Profile, limits: EngineLimits, options: EngineOptions) -> tuple[int, str]:
    """Usable KV blocks per rank, and how they were obtained."""
    if options.num_gpu_blocks_override is not None:
        return options.num_gpu_blocks_override - 1, "--num-gpu-blocks-override, less the null block"
    share = options.gpu_memory_utilization
    if profile.kv.obtained == "logged" and share is None:
        return profile.kv_tokens // limits.block_size, f"logged: {profile.kv.how}"
    model = facts.model_of_profile(profile.model.hf_name)
    gpu = next((g for g in facts.gpus().values() if g.name == profile.gpu.name), None)
    if model is None or gpu is None or profile.parallelism.tp not in memory.NCCL_BYTES:
        if share is None:
            return profile.kv_tokens // limits.block_size, f"{profile.kv.obtained}, as the profile says"
        message = f"the memory of {profile.model.hf_name} on {profile.gpu.name} is not known"
        raise BadInput(Fault("--gpu-memory-utilization", "", share, "set --num-gpu-blocks-override", None, message))
    share = profile.defaults.gpu_memory_utilization if share is None else share
    plan = memory.plan(
        model,
        gpu,
        dtype=profile.model.dtype,
        tp=profile.parallelism.tp,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_num_seqs=limits.max_num_seqs,
        utilization=share,
        block_size=limits.block_size,
    )
    return plan.num_blocks, f"computed from the memory of the GPU at utilization {share:g}"


def _refusals(limits: EngineLimits, kv_how: str) -> list[Fault]:
    """What vLLM's configuration checks refuse."""
    tokens, longest = limits.max_num_batched_tokens, limits.max_model_len
    faults = []
    if tokens < limits.max_num_seqs:
        allowed = f"at least max_num_seqs = {limits.max_num_seqs}, so that every sequence can decode in each step"
        faults.append(Fault("--max-num-batched-tokens", given=tokens, allowed=allowed, message="too small"))
    if not limits.chunked_prefill and tokens < longest:
        allowed = f"at least max_model_len = {longest} without chunked prefill; or a smaller --max-model-len"
        faults.append(Fault("--max-num-batched-tokens", given=tokens, allowed=allowed, message="too small"))
    if limits.long_prefill_token_threshold > longest:
        threshold = limits.long_prefill_token_threshold
        allowed = f"at most max_model_len = {longest}"
        faults.append(Fault("--long-prefill-token-threshold", given=threshold, allowed=allowed, message="too large"))
    most = most_seqs(longest, limits.block_size, limits.lockstep_ranks)
    if limits.prefix_caching and limits.max_num_seqs > most:
        allowed = f"up to {most} with this max_model_len and block_size; or --no-enable-prefix-caching"
        message = "more blocks than can be followed"
        faults.append(Fault("--max-num-seqs", given=limits.max_num_seqs, allowed=allowed, message=message))
    if limits.num_blocks * limits.block_size < longest:
        needed = -(-longest // limits.block_size)
        held = limits.num_blocks * limits.block_size
        message = (
            f"{limits.num_blocks} usable blocks ({kv_how}) hold {held} tokens; the engine must be able to hold one "
            f"request of max_model_len = {longest}"
        )
        less = f"--max-model-len up to {held}, or " if held > 1 else ""
        allowed = f"set {less}--num-gpu-blocks-override from {needed + 1}, or more --gpu-memory-utilization"
        faults.append(Fault("KV blocks", allowed=allowed, message=message))
    return faults

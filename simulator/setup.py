"""All that a world needs, resolved from a config: engine, workload, costs, shares of the GPUs."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from rollsim.policies.base import Decoding, Shares
from rollsim.policies.decoding_batch_gated import BatchGated
from rollsim.policies.readiness_batch import Batch
from rollsim.policies.selection_drop_zero_variance import DropZeroVariance
from rollsim.simulator.config import Config, ModelSection, WorkloadSection
from rollsim.simulator.costs import StepCost
from rollsim.simulator.engine_options import EngineOptions, engine, in_section
from rollsim.simulator.facts import GpuFacts, gpu_of_profile
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.memory import GIB
from rollsim.simulator.policy_settings import Policies
from rollsim.simulator.profile import Profile
from rollsim.simulator.profile_parts import Rate, Value
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.replica import unfit
from rollsim.simulator.reward_latency import RewardLatency
from rollsim.simulator.rng import Streams
from rollsim.simulator.sync_cost import HOST_BYTES_PER_S, SWITCH_FIXED_S, SyncCost, path
from rollsim.simulator.train_cost import TrainCost
from rollsim.simulator.train_flops import is_mixture
from rollsim.simulator.train_memory import TrainMemory, memory_faults, memory_notes, train_memory
from rollsim.simulator.train_rates import NAMES, rates, values
from rollsim.simulator.view import Counts
from rollsim.simulator.workload import Workload
from rollsim.simulator.workload_source import open_workload
from rollsim.traces.errors import BadInput, Fault, gathering

DEFAULT_UTILIZATION = 0.9
_LOOKED_AT = 1024  # prompts, to see whether a workload knows any reward


@dataclass(frozen=True)
class Setup:
    """A world's parts; `notes` say what a user should know."""

    config: Config
    policies: Policies
    shares: Shares
    limits: EngineLimits
    step_cost: StepCost
    gpus_per_replica: int
    workload: Workload
    reward_latency: RewardLatency
    train_cost: TrainCost
    train_values: dict[str, Value]
    sync_cost: SyncCost
    seed: int = 0
    notes: tuple[str, ...] = ()

    @property
    def roles(self) -> frozenset[str]:
        """Optional passes of a train step."""
        train = self.config.train
        return frozenset(name for name in ("logprob", "reference", "critic") if getattr(train, name))

    @property
    def streams(self) -> bool:
        """Whether a train step begins before it has all of its groups."""
        return not isinstance(self.policies.readiness, Batch)

    @property
    def checkpoint_s(self) -> float:
        """Seconds that the trainer needs to write a checkpoint."""
        return self.config.train.checkpoint_s or 0.0

    @property
    def replicas(self) -> int:
        """Replicas of the rollout pool."""
        return self.shares.rollout_gpus // self.gpus_per_replica


def resolve(config: Config, file: str = "config", seed: int = 0) -> Setup:
    """Build the parts; all that is random comes from `seed`.

    Raises
    ------
    BadInput
        Whatever does not fit together: names, memory, GPUs, lengths.
    """
    faults: list[Fault] = []
    policies = profile = workload = None
    with gathering(faults):
        policies = config.built_policies(file)
    with gathering(faults):
        profile = _profile(config.model, file)
    with gathering(faults):
        workload = _workload(config.workload, seed, file)
    if policies is None or profile is None or workload is None:
        raise BadInput(faults)
    shares = policies.allocation.shares(Counts(total_gpus=config.cluster.gpus))
    size = profile.parallelism.gpus
    if shares.rollout_gpus < size:
        message = f"a replica of {profile.name} needs {size}"
        faults.append(Fault(file, "policies.allocation", f"{shares.rollout_gpus} rollout GPUs", message=message))
    train = config.train
    train_values = _train_values(config, profile)
    with gathering(faults):
        gpu = _train_gpu(config, profile, file)
    if faults:
        raise BadInput(faults)
    train_cost = TrainCost(
        profile.model,
        gpu,
        shares.train_gpus,
        train.model_parallel,
        train.recompute,
        rates(train_values),
        train.sharding,
        train.pipeline,
        train.max_tokens_per_gpu,
        train.dtype,
    )
    longest = workload.longest_prompt_tokens, workload.longest_output_tokens
    memory = train_memory(
        train_cost, sum(longest), critic=train.critic, reference=train.reference, fused_logits=train.fused_logits
    )
    faults += memory_faults(memory, train_cost, file)
    resident_gib = 0.0
    if shares.shared and not faults:
        resident_gib = memory.kept(config.rollout.offload_train) / GIB
    try:
        found = engine(profile, _options(config, resident_gib / profile.gpu.memory_gib))
    except BadInput as error:
        raise BadInput(faults + in_section(error.faults, file, "rollout")) from None
    faults += _length_faults(found.limits, workload, policies.decoding, file)
    if faults:
        raise BadInput(faults)
    notes = [*found.notes, *workload.notes, *memory_notes(memory, train_cost)]
    if left := shares.rollout_gpus % size:
        notes.append(f"{left} rollout GPUs stay idle: a replica takes {size}")
    wants_rewards = any(isinstance(policy, DropZeroVariance) for policy in policies.selection.policies)
    if wants_rewards and np.isnan(workload.draw(np.arange(_LOOKED_AT), 0).reward).all():
        notes.append("no reward is known: drop_zero_variance drops no group")
    return Setup(
        config=config,
        policies=policies,
        shares=shares,
        limits=found.limits,
        step_cost=profile.step_cost(found.limits),
        gpus_per_replica=size,
        workload=workload,
        reward_latency=RewardLatency(config.workload.reward_s, Streams(seed)),
        seed=seed,
        train_cost=train_cost,
        train_values=train_values,
        sync_cost=_sync_cost(config, profile, shares, memory),
        notes=tuple(notes),
    )


def named_faults(document: Mapping[str, Any], file: str) -> list[Fault]:
    """Whatever a config that has other faults names and cannot be read: its profile, its trace or law."""
    faults: list[Fault] = []
    for section, kind, read in (
        ("model", ModelSection, lambda found: _profile(found, file)),
        ("workload", WorkloadSection, lambda found: _workload(found, 0, file)),
    ):
        with suppress(ValidationError), gathering(faults):
            read(kind.model_validate(document.get(section)))
    return faults


def _profile(section: ModelSection, file: str) -> Profile:
    return load_profile(section.profile, f"{file}: model.profile")


def _workload(section: WorkloadSection, seed: int, file: str) -> Workload:
    return open_workload(
        section.trace,
        section.law,
        Streams(seed),
        visits=section.visits,
        cap_tokens=section.cap_tokens,
        drift=section.drift or (),
        order=section.order,
        file=file,
    )


def _length_faults(limits: EngineLimits, workload: Workload, decoding: Decoding, file: str) -> list[Fault]:
    """Whether the longest response fits a replica, with all drafts of speculation as without any."""
    longest = workload.longest_prompt_tokens, workload.longest_output_tokens
    message = f"its longest prompt has {longest[0]} tokens, its longest response {longest[1]}"
    if reason := unfit(limits, *longest):
        return [Fault(file, "workload", workload.name, message=f"{message}: {reason}")]
    drafts = decoding.drafts if isinstance(decoding, BatchGated) else 0
    place, allowed = "policies.decoding.drafts", f"below max_num_batched_tokens = {limits.max_num_batched_tokens}"
    if drafts >= limits.max_num_batched_tokens:
        return [Fault(file, place, drafts, allowed, message="a step cannot verify so many")]
    if reason := unfit(limits, *longest, drafts):
        return [Fault(file, place, drafts, message=f"{workload.name}: {message}: {reason}")]
    return []


def _train_values(config: Config, profile: Profile) -> dict[str, Value]:
    train = config.train
    stated = {name: getattr(train, name) for name in NAMES}
    return values(profile.train, stated, mixture=is_mixture(profile.model), gpu=profile.gpu.name, dtype=train.dtype)


def _train_gpu(config: Config, profile: Profile, file: str) -> GpuFacts:
    try:
        gpu = gpu_of_profile(profile.gpu.name)
    except BadInput as error:
        message = "no train cost is known for its GPU; it can be replayed"
        raise BadInput(
            replace(fault, file=file, place="model.profile", message=message) for fault in error.faults
        ) from None
    if config.train.dtype in gpu.flops:
        return gpu
    raise BadInput(Fault(file, "train.dtype", config.train.dtype, ", ".join(gpu.flops), message=f"on {gpu.name}"))


def _options(config: Config, resident: float) -> EngineOptions:
    rollout = config.rollout
    utilization = rollout.gpu_memory_utilization
    if resident and rollout.num_gpu_blocks_override is None:
        utilization = min(utilization or DEFAULT_UTILIZATION, 1 - resident)
    return EngineOptions(
        max_num_seqs=rollout.max_num_seqs,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
        max_model_len=rollout.max_model_len,
        num_gpu_blocks_override=rollout.num_gpu_blocks_override,
        gpu_memory_utilization=utilization,
        enable_prefix_caching=rollout.enable_prefix_caching,
        async_scheduling=rollout.async_scheduling,
    )


def _sync_cost(config: Config, profile: Profile, shares: Shares, memory: TrainMemory) -> SyncCost:
    sync, section = config.sync, profile.sync
    switch = section.switch_fixed_s or SWITCH_FIXED_S
    host = section.host_bytes_per_s or HOST_BYTES_PER_S
    width = 2 if profile.model.dtype == "bf16" else 1
    return SyncCost(
        path(sync.path, section, sync.fixed_s, sync.bytes_per_s),
        sync.sent_share * width * profile.model.parameters,
        profile.parallelism.gpus,
        memory.offloaded(config.rollout.offload_train) if shares.shared else 0.0,
        switch if sync.switch_fixed_s is None else Value.stated(sync.switch_fixed_s),
        host if sync.host_bytes_per_s is None else Rate.stated(sync.host_bytes_per_s),
        path("relay_push", section),
        path("relay_pull", section),
    )

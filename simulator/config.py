"""The config of a run: sections that cannot be changed, refuse unknown keys, and name every fault at once."""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError

from rollsim.policies.admission_fixed_batch import FixedBatch
from rollsim.policies.allocation_colocate import Colocate
from rollsim.policies.readiness_batch import Batch
from rollsim.policies.round_end_first_k import FirstK
from rollsim.policies.selection_in_order import InOrder
from rollsim.simulator.length_law import Drift
from rollsim.simulator.model_faults import model_faults
from rollsim.simulator.policy_settings import Policies, build_policies
from rollsim.simulator.profile_parts import Part, Seconds, SyncName
from rollsim.simulator.recorded_workload import Order
from rollsim.simulator.reward_latency import RewardSeconds
from rollsim.simulator.train_cost import MICRO_BATCH_TOKENS, Sharding
from rollsim.simulator.train_memory import Offload
from rollsim.simulator.view import Counts
from rollsim.simulator.workload import Visits
from rollsim.traces.errors import BadInput, Fault, closest

# Records of a trajectory take about 300 bytes.
_MOST_TRAJECTORIES = 1_000_000_000

Share = Annotated[float, Field(gt=0, le=1)]


class ModelSection(Part):
    """Model, GPU type, parallelism and engine of a rollout replica, all by the profile."""

    profile: str


class ClusterSection(Part):
    """GPUs of the cluster, all of the profile's type; price of one."""

    gpus: Annotated[int, Field(ge=1, le=1_000_000)]
    usd_per_gpu_hour: PositiveFloat | None = None


class RolloutSection(Part):
    """Limits of each replica, under vLLM's names; what is left out is the engine's default.

    `offload_train`: shared GPUs move the train state, or the `optimizer` alone, to the host while they generate; what
    stays takes memory.
    """

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    num_gpu_blocks_override: int | None = None
    gpu_memory_utilization: Share | None = None
    enable_prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    offload_train: Offload = True


class TrainSection(Part):
    """Train steps: their batch, its passes and mini-batches, and the free parameters of their cost.

    Each of `epochs` x `mini_batches` is one optimizer update; weights are published after the last (`publish` step) or
    after each. Every so many steps the model is validated, while the trainer waits, and a checkpoint is written (0:
    never); `warm_up_s` passes before anything is generated. `model_parallel` GPUs, in `pipeline` stages, hold a copy of
    the model; rates that are None are the profile's, or the defaults of `train_rates`.
    """

    steps: PositiveInt
    prompts_per_step: PositiveInt
    samples_per_prompt: PositiveInt = 1
    mini_batches: PositiveInt = 1
    epochs: PositiveInt = 1
    publish: Literal["step", "mini_batch"] = "step"
    logprob: bool = True
    reference: bool = False
    critic: bool = False
    validate_every: NonNegativeInt = 0
    validation_prompts: PositiveInt = 64
    validation_samples: PositiveInt = 1
    checkpoint_every: NonNegativeInt = 0
    checkpoint_s: Seconds | None = None
    warm_up_s: Seconds = 0.0
    model_parallel: PositiveInt = 1
    pipeline: PositiveInt = 1
    sharding: Sharding = "full"
    max_tokens_per_gpu: PositiveInt = MICRO_BATCH_TOKENS
    recompute: bool = True
    fused_logits: bool = True
    dtype: Literal["bf16", "fp8"] = "bf16"
    mfu: Share | None = None
    attention_mfu: Share | None = None
    forward_mfu: Share | None = None
    link_bytes_per_s: PositiveFloat | None = None
    exposed_communication: Annotated[float, Field(ge=0, le=1)] | None = None


class SyncSection(Part):
    """Path of new weights to the replicas; None leaves the numbers of the profile, or the defaults of `sync_cost`.

    `sent_share`: of the bytes of all weights; less than 1 where adapters alone are sent.
    """

    path: SyncName = "nccl"
    fixed_s: Seconds | None = None
    bytes_per_s: PositiveFloat | None = None
    sent_share: Share = 1.0
    switch_fixed_s: Seconds | None = None
    host_bytes_per_s: PositiveFloat | None = None


class WorkloadSection(Part):
    """Where lengths come from, a recorded trace or a length law, and how long a reward takes.

    `visits`: whether a prompt that comes back meets its responses again or new ones. `order`: whether prompts are
    groups of the trace drawn at random by the seed (resampled, the default) or in its order (recorded). `drift`: by how
    much lengths grow over the versions of the weights, instead of the law's. `reward_s`: seconds of each, or a
    lognormal of `median_s` and `p99_s`, with or without a `timeout_s`.
    """

    trace: str | None = None
    law: str | None = None
    visits: Visits = "redraw"
    cap_tokens: PositiveInt | None = None
    drift: tuple[Drift, ...] | None = None
    order: Order | None = None
    reward_s: RewardSeconds = 0.0


class RecordSection(Part):
    """What a run keeps besides the trajectories: a row for each stay of a trajectory on a replica."""

    segments: bool = False


class Config(Part):
    """A run; `policies` is validated by `policy_settings` and kept as it was written."""

    model: ModelSection
    cluster: ClusterSection
    rollout: RolloutSection = RolloutSection()
    train: TrainSection
    sync: SyncSection = SyncSection()
    workload: WorkloadSection
    policies: dict[str, Any] = Field(default_factory=dict)
    record: RecordSection = RecordSection()

    def built_policies(self, file: str = "config") -> Policies:
        """The policies themselves; `BadInput` with every fault."""
        policies, faults = build_policies(self.policies, file)
        if policies is None:
            raise BadInput(faults)
        return policies


def read_document(path: Path) -> dict[str, Any]:
    """Read the YAML of a config.

    Raises
    ------
    BadInput
        If there is no such file, or it is not a YAML mapping.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = [str(other) for other in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        raise BadInput(Fault(str(path), closest=closest(path, near), message="no such file")) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(Fault(str(path), message=f"cannot be read: {error}")) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        message = f"not YAML: {getattr(error, 'problem', None) or error}"
        raise BadInput(Fault(str(path), place, message=message)) from None
    if not isinstance(document, dict):
        raise BadInput(Fault(str(path), given=type(document).__name__, allowed="sections", message="not a config"))
    return document


def parse(document: dict[str, Any], file: str = "config", *, shares: bool = True) -> Config:
    """Validate a config; without `shares`, not whether its allocation fits the cluster.

    Raises
    ------
    BadInput
        Every fault of every section, with its path and the closest allowed name.
    """
    faults: list[Fault] = []
    config = None
    try:
        config = Config.model_validate(document)
    except ValidationError as error:
        faults += model_faults(error, Config, file)
    written = document.get("policies") or {}
    policies = None
    if isinstance(written, dict):
        policies, more = build_policies(written, file)
        faults += more
    if config is not None:
        faults += _train_faults(config, policies, file)
        if policies is not None and shares:
            faults += _share_faults(config, policies, file)
    if config is None or faults:
        raise BadInput(faults)
    return config


def _train_faults(config: Config, policies: Policies | None, file: str) -> list[Fault]:
    train = config.train
    faults = []
    in_all = train.steps * train.prompts_per_step * train.samples_per_prompt
    if in_all > _MOST_TRAJECTORIES:
        allowed = f"up to {_MOST_TRAJECTORIES:,} = steps x prompts_per_step x samples_per_prompt"
        faults.append(Fault(file, "train", f"{in_all:,} trajectories", allowed, message="more than a run can hold"))
    if train.mini_batches > train.prompts_per_step * train.samples_per_prompt:
        message = "more mini-batches than trajectories in a step"
        allowed = f"1 to {train.prompts_per_step * train.samples_per_prompt}"
        faults.append(Fault(file, "train.mini_batches", train.mini_batches, allowed, message=message))
    if train.model_parallel % train.pipeline:
        allowed = f"a divisor of model_parallel = {train.model_parallel}"
        faults.append(
            Fault(file, "train.pipeline", train.pipeline, allowed, message="stages share a copy of the model")
        )
    if policies is None:
        return faults
    for policy in policies.admission.policies:
        if isinstance(policy, FixedBatch) and policy.ahead and policy.over_issue:
            message = "rounds that overlap cannot be over-issued"
            faults.append(
                Fault(file, "policies.admission.over_issue", policy.over_issue, "0 with ahead", message=message)
            )
    if isinstance(policies.round_end, FirstK) and any(isinstance(p, InOrder) for p in policies.selection.policies):
        message = "in_order waits for the groups that a closed round leaves unfinished"
        faults.append(Fault(file, "policies.selection", "in_order", "without round_end first_k", message=message))
    streams = not isinstance(policies.readiness, Batch)
    if streams and train.epochs > 1:
        message = "what streams into the trainer is seen once"
        faults.append(Fault(file, "train.epochs", train.epochs, "1 with readiness streaming", message=message))
    if isinstance(policies.allocation, Colocate) and train.publish == "mini_batch":
        message = "shared GPUs take new weights when they go back to generation"
        faults.append(Fault(file, "train.publish", train.publish, "step with allocation colocate", message=message))
    return faults


def _share_faults(config: Config, policies: Policies, file: str) -> list[Fault]:
    """Splits that leave a role without GPUs, and shared GPUs under policies that generate while they train."""
    shares = policies.allocation.shares(Counts(total_gpus=config.cluster.gpus))
    faults = []
    place = "policies.allocation"
    if min(shares.rollout_gpus, shares.train_gpus) < 1:
        given = f"{shares.rollout_gpus} rollout + {shares.train_gpus} train GPUs"
        faults.append(Fault(file, place, given, "at least 1 each", message=f"{config.cluster.gpus} GPUs in all"))
    elif shares.train_gpus % config.train.model_parallel:
        allowed = f"a divisor of the {shares.train_gpus} train GPUs"
        faults.append(Fault(file, "train.model_parallel", config.train.model_parallel, allowed))
    if shares.shared and not policies.synchronous:
        message = "shared GPUs cannot generate while they train"
        allowed = "admission fixed_batch with ahead 0 or staleness_quota with eta 0; round_end without keep; no relay"
        faults.append(Fault(file, place, "colocate", allowed, message=message))
    return faults

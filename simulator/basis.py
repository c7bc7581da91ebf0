"""What the answer of a run rests on: engine, workload, policies, and what is fitted, assumed, extrapolated."""

from dataclasses import asdict
from typing import Any

import numpy as np

from rollsim.policies.weight_sync_relay import Relay
from rollsim.simulator import train_memory
from rollsim.simulator.profile import Profile
from rollsim.simulator.profile_parts import Claim
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.setup import Setup
from rollsim.simulator.train_rates import claims as train_claims
from rollsim.simulator.world import World


def basis(world: World) -> dict[str, Any]:
    """Return it as JSON, for the summary of a world that has run."""
    setup = world.setup
    config, shares = setup.config, setup.shares
    profile = load_profile(config.model.profile)
    band = profile.bias_band()
    return {
        "cluster": {
            "gpus": config.cluster.gpus,
            "usd_per_gpu_hour": config.cluster.usd_per_gpu_hour,
            "rollout_gpus": shares.rollout_gpus,
            "train_gpus": shares.train_gpus,
            "shared": shares.shared,
            "replicas": setup.replicas,
            "gpus_per_replica": setup.gpus_per_replica,
        },
        "profile": {
            "name": profile.name,
            "model": profile.model.hf_name,
            "dtype": profile.model.dtype,
            "gpu": profile.gpu.name,
            "tp": profile.parallelism.tp,
            "engine": profile.engine.rules,
            "source": profile.source.name,
            "cautions": list(profile.cautions),
        },
        "limits": asdict(setup.limits),
        "workload": config.workload.model_dump(mode="json"),
        "train": config.train.model_dump(),
        "policies": config.policies,
        "hard_eta": setup.policies.hard_eta,
        "claims": claims(setup, profile),
        "bias": None if band is None else asdict(band),
        "outside_range": _outside(world, profile),
        "notes": [*setup.notes, *_empty_steps(world)],
    }


def _empty_steps(world: World) -> list[str]:
    empty = sum(not step["trajectories"] for step in world.steps)
    return [f"{empty} of {len(world.steps)} train steps had no trajectory left: early_stop stopped all"] * (empty > 0)


def claims(setup: Setup, profile: Profile) -> list[dict[str, str]]:
    """Grade of every part of the costs and lengths.

    Those of the profile, the train step, the weight sync, the switch of roles, the reward and the length law.
    """
    relayed = isinstance(setup.policies.weight_sync, Relay)
    sync = setup.sync_cost.claims(setup.config.sync.path, relayed=relayed, shared=setup.shares.shared)
    parts = [*profile.claims, *train_claims(setup.train_values), train_memory.CLAIM, *sync]
    if setup.config.workload.reward_s:
        how = "as the config says; independent of the length and the reward"
        parts.append(Claim(part="reward latency", grade="assumed", how=how))
    lengths = [claim.model_copy(update={"part": f"lengths: {claim.part}"}) for claim in setup.workload.claims]
    return [claim.model_dump() for claim in (*parts, *lengths)]


def _outside(world: World, profile: Profile) -> list[str]:
    """Say what of the run lies outside the fitted range of the profile."""
    engines = np.concatenate([s.engine for s in world.pool.states()])
    rows = world.trajectories.rows
    if not len(rows):
        return []
    context = rows["prompt_tokens"] + rows["output_tokens"] - 1
    again = (rows["num_preempted"] > 0) | (rows["attempts"] > 0)
    return profile.outside_range(
        max_batch=int(engines["max_batch"].max()),
        max_context_tokens=int(context.max()),
        max_kv_tokens=int(engines["max_blocks"].max()) * world.setup.limits.block_size,
        max_prefill_tokens=int(engines["max_step_tokens"].max()),
        max_prefill_context_tokens=int(np.maximum(rows["prompt_tokens"], np.where(again, context, 0)).max()),
    )

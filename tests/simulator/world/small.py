"""Worlds small enough to compute by hand: every engine step takes 1 s, whatever is in it."""

from dataclasses import dataclass, replace

import numpy as np

from rollsim.simulator.config import parse
from rollsim.simulator.costs import StepCost
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.setup import Setup, resolve
from rollsim.simulator.train_cost import Gradients
from rollsim.simulator.workload import Responses
from rollsim.simulator.world import World

PROMPT_TOKENS = 16
PROFILE = "qwen3-8b-h200-tp1-bf16"
LIMITS = {"async_scheduling": False, "max_num_seqs": 16, "max_num_batched_tokens": 2048, "max_model_len": 2048}
TRAIN_S, SYNC_S, SWITCH_S, PUSH_S, PULL_S = 10.0, 2.0, 1.0, 2.0, 3.0


@dataclass(frozen=True)
class Given:
    """Lengths (and rewards) by prompt and sample; prompts beyond the last begin again."""

    lengths: tuple[tuple[int, ...], ...]
    rewards: tuple[tuple[float, ...], ...] | None = None
    name: str = "given"
    content_hash: str = ""
    notes: tuple[str, ...] = ()
    claims: tuple = ()
    longest_prompt_tokens: int = PROMPT_TOKENS
    longest_output_tokens: int = 1000

    def draw(self, prompt, sample, *, visit=0, attempt=0, version=0):
        """As `Workload.draw`."""
        prompt, sample, _ = np.broadcast_arrays(prompt, sample, visit)
        row, column = prompt % len(self.lengths), sample % len(self.lengths[0])
        tokens = np.array(self.lengths)[row, column]
        reward = np.full(row.shape, np.nan) if self.rewards is None else np.array(self.rewards)[row, column]
        no = np.zeros(row.shape, bool)
        return Responses(np.full(row.shape, PROMPT_TOKENS), tokens, no, np.full(row.shape, np.nan), reward, no)


class Steady:
    """A train pool for which any forward and backward pass takes `TRAIN_S` and all else nothing."""

    communication_s = optimizer_s = 0.0

    def forward_s(self, tokens):
        """Seconds of a pass without gradients."""
        return 0.0 * len(tokens)

    def gradients(self, tokens):
        """Seconds of one with."""
        return Gradients(TRAIN_S if len(tokens) else 0.0, 0.0)


@dataclass(frozen=True)
class Fixed:
    """Sync and switch."""

    sync_s: float = SYNC_S
    push_s: float = PUSH_S
    pull_s: float = PULL_S
    switch_s: float = SWITCH_S


def second_steps(limits) -> StepCost:
    """Every step that does something takes 1 s."""
    table = np.ones(limits.max_num_batched_tokens * limits.lockstep_ranks + 1)
    table[0] = 0.0
    zero = np.zeros(1)
    return StepCost(0.0, False, table, table, np.zeros(limits.max_num_seqs + 1), 0.0, zero, np.ones(1), zero)


def config(policies, *, gpus=4, steps=3, prompts=2, samples=2, train=(), reward_s=0.0):
    """A validated config; `train` holds more of its section."""
    return parse(
        {
            "model": {"profile": PROFILE},
            "cluster": {"gpus": gpus},
            "train": {"steps": steps, "prompts_per_step": prompts, "samples_per_prompt": samples, "logprob": False}
            | dict(train),
            "workload": {"trace": "example:grpo", "reward_s": reward_s},
            "policies": policies,
        }
    )


def setup(policies, lengths, rewards=None, *, hand=True, limits=(), **sections) -> Setup:
    """Setup of a small world; `hand` replaces all costs by those of this file, `limits` fields of the engine's."""
    made = resolve(config(policies, **sections))
    bounds = replace(made.limits, **(LIMITS | dict(limits)))
    made = replace(made, workload=Given(tuple(map(tuple, lengths)), rewards), limits=bounds)
    if hand:
        return replace(made, step_cost=second_steps(bounds), train_cost=Steady(), sync_cost=Fixed())
    return replace(made, step_cost=load_profile(PROFILE).step_cost(bounds))


def run(made: Setup, watchers=()) -> World:
    """Run it; a world that goes on for too long is stuck."""
    world = World(made, watchers)
    look = world.look

    def counted():
        assert world.wakes < 100_000, "the world does not come to an end"
        look()

    world.look = counted
    world.run()
    return world


SPLIT = {"use": "static_split", "rollout_gpus": 2}

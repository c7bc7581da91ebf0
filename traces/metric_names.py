"""What the step metrics of each framework are called: one table, for what is read from logs and what is written.

A meaning is a column of the ``steps`` table where there is one. A name may be a sum, ``a + b`` (of those that a step
has), and one of several, ``a | b`` (the first that a step has); ``*`` stands for one part of a path, as the name of an
environment. Names are equal here only where what they measure is: `rollsim.traces.importers.step_definitions` converts
the rest. Names are those of verl 0.9.1, AReaL 4aef98d, slime 624b824, OpenRLHF 3c3be62, NeMo-RL 7ea279a, prime-rl
559b447, SkyRL a956457 and TRL f2cd577 (all 2026), from their sources; most were not seen in a real log.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache, lru_cache

FRAMEWORKS = ("verl", "areal", "slime", "openrlhf", "nemo-rl", "prime-rl", "skyrl", "trl")

METRIC_NAMES: dict[str, dict[str, str]] = {
    "step_s": {
        "verl": "timing_s/step | perf/time_per_step", "slime": "perf/step_time", "openrlhf": "timing/step_total",
        "nemo-rl": "timing/train/total_step_time", "prime-rl": "time/step", "skyrl": "timing/step", "trl": "step_time",
    },
    "generate_s": {
        "verl": "timing_s/gen | timing_s/wait_for_enough_samples | timing_s/generate_async",
        "areal": "timeperf/rollout", "slime": "perf/rollout_time", "openrlhf": "timing/generation",
        "nemo-rl": "timing/train/generation | timing/train/exposed_generation", "prime-rl": "time/wait_for_batch",
        "skyrl": "timing/generate | timing/wait_for_generation_buffer", "trl": "queue_wait_time_s",
    },
    "reward_s": {"verl": "timing_s/reward", "nemo-rl": "timing/train/reward_calculation"},
    "logprob_s": {
        "verl": "timing_s/old_log_prob + timing_s/ref + timing_s/values",
        "areal": "timeperf/recompute_logp + timeperf/ref_logp + timeperf/teacher_logp + timeperf/critic_values",
        "slime": "perf/log_probs_time + perf/ref_log_probs_time",
        "openrlhf": "timing/make_experience",
        "nemo-rl": "timing/train/policy_and_reference_logprobs", "skyrl": "timing/fwd_logprobs_values_reward",
    },
    "advantage_s": {"verl": "timing_s/adv"},
    "train_s": {
        "verl": "timing_s/update_actor + timing_s/update_critic",
        "areal": "timeperf/train_step + timeperf/critic_train_step",
        "slime": "perf/actor_train_time", "openrlhf": "timing/ppo_train", "nemo-rl": "timing/train/policy_training",
        "prime-rl": "time/forward_backward", "skyrl": "timing/train_critic_and_policy | timing/policy_train",
        "trl": "forward_time_s",
    },
    "weight_sync_s": {
        "verl": "timing_s/update_weights | timing_s/param_sync | timing_s/timing_s/param_sync",
        "areal": "timeperf/update_weights",
        "slime": "perf/update_weights_time", "openrlhf": "timing/broadcast",
        "nemo-rl": "timing/train/weight_sync | timing/train/prepare_for_generation/total",
        "prime-rl": "time/broadcast_weights", "skyrl": "timing/sync_weights", "trl": "weight_sync_time_s",
    },
    "switch_s": {
        "verl": "timing_s/switch_to_trainer + timing_s/switch_wait + timing_s/switch_to_rollout",
        "areal": "timeperf/rollout_offload + timeperf/rollout_onload",
    },
    "checkpoint_s": {
        "verl": "timing_s/save_checkpoint", "areal": "timeperf/save + timeperf/checkpoint_for_recover",
        "slime": "perf/save_model_time", "prime-rl": "time/save_ckpt",
        "skyrl": "timing/save_checkpoints + timing/save_hf_model",
    },
    "validation_s": {"verl": "timing_s/testing", "areal": "timeperf/eval", "skyrl": "timing/eval"},
    "response_tokens_mean": {
        "verl": "response_length/mean", "slime": "rollout/response_len/mean",
        "openrlhf": "rollout/response_length_mean", "nemo-rl": "train/mean_gen_tokens_per_sample",
        "prime-rl": "train/*/effective/num_output_tokens/mean | train/*/all/num_output_tokens/mean",
        "skyrl": "generate/avg_num_tokens", "trl": "completions/mean_length",
    },
    "response_tokens_min": {
        "verl": "response_length/min", "slime": "rollout/response_len/min",
        "prime-rl": "train/*/effective/num_output_tokens/min | train/*/all/num_output_tokens/min",
        "skyrl": "generate/min_num_tokens", "trl": "completions/min_length",
    },
    "response_tokens_max": {
        "verl": "response_length/max", "slime": "rollout/response_len/max",
        "nemo-rl": "train/max_gen_tokens_per_sample",
        "prime-rl": "train/*/effective/num_output_tokens/max | train/*/all/num_output_tokens/max",
        "skyrl": "generate/max_num_tokens", "trl": "completions/max_length",
    },
    "truncated_share": {
        "verl": "response_length/clip_ratio", "slime": "rollout/truncated_ratio",
        "openrlhf": "rollout/truncated_rate", "nemo-rl": "train/truncation_rate",
        "prime-rl": "train/*/effective/is_truncated/mean | train/*/all/is_truncated/mean",
        "trl": "completions/clipped_ratio",
    },
    "aborted_share": {"verl": "response/aborted_ratio"},
    "prompt_tokens_mean": {
        "verl": "prompt_length/mean", "areal": "ppo_actor/prompt_len", "nemo-rl": "train/mean_prompt_length",
        "prime-rl": "train/*/effective/num_input_tokens/mean | train/*/all/num_input_tokens/mean",
    },
    "prompt_tokens_max": {
        "verl": "prompt_length/max",
        "prime-rl": "train/*/effective/num_input_tokens/max | train/*/all/num_input_tokens/max",
    },
    "reward_mean": {
        "verl": "critic/score/mean", "areal": "ppo_actor/task_reward", "slime": "rollout/raw_reward",
        "openrlhf": "rollout/reward_mean",
        "nemo-rl": "train/reward",
        "skyrl": "reward/avg_raw_reward", "trl": "reward",
    },
    "staleness_mean": {
        "verl": "training/off_policy/trajectory_staleness_worst/mean", "nemo-rl": "train/avg_trajectory_age",
        "prime-rl": "off_policy/mean", "skyrl": "async/staleness_mean",
    },
    "staleness_max": {
        "verl": "training/off_policy/trajectory_staleness_worst/max", "prime-rl": "off_policy/max",
        "skyrl": "async/staleness_max",
    },
    "sequence_tokens_mean": {"areal": "ppo_actor/seq_len"},
    "trajectories": {"openrlhf": "rollout/num_samples"},
    "total_tokens": {"verl": "perf/total_num_tokens", "nemo-rl": "train/total_num_tokens"},
    "step_tokens_per_gpu_s": {
        "verl": "perf/throughput", "nemo-rl": "performance/tokens_per_sec_per_gpu",
    },
    "train_tokens_per_gpu_s": {
        "prime-rl": "perf/throughput_per_gpu", "skyrl": "trainer/tokens_per_second_per_gpu",
    },
    "rollout_tokens_per_gpu_s": {
        "slime": "perf/tokens_per_gpu_per_sec", "nemo-rl": "performance/generation_tokens_per_sec_per_gpu",
    },
    "trainer_wait_s": {
        "slime": "perf/train_wait_time", "nemo-rl": "timing/train/idle/buffer_starvation",
        "prime-rl": "time/wait_for_batch",
    },
    "trainer_idle_share": {
        "verl": "fully_async/trainer/idle_ratio", "slime": "perf/wait_time_ratio",
        "nemo-rl": "performance/training_worker_idle_time_ratio",
    },
    "rollout_idle_share": {"verl": "fully_async/rollouter/idle_ratio"},
    "mfu": {"verl": "perf/mfu/actor", "nemo-rl": "performance/train_fp_utilization", "prime-rl": "perf/mfu"},
}  # fmt: skip

# What trackers put before or after the names of a framework.
_AROUND = {"openrlhf": ("{}", "train/{}"), "trl": ("{}", "train/{}"), "areal": ("{}", "{}/avg")}
# Names that say which step a record of a tracker is of; the tracker's own counter where there is none.
STEP_NAMES = {
    "verl": ("training/global_step", "step"), "slime": ("rollout/step", "train/step"),
    "openrlhf": ("train/global_step", "global_step"), "trl": ("train/global_step", "step"),
    "skyrl": ("trainer/global_step",), "prime-rl": ("step",),
}  # fmt: skip


def parse(expression: str) -> list[list[str]]:
    """Split ``a + b | c`` into ``[[a, b], [c]]``."""
    return [choice.split(" + ") for choice in expression.split(" | ")]


@cache
def spellings(framework: str) -> dict[str, list[list[tuple[str, ...]]]]:
    """Return, for each meaning, choices of sums of names, each in all its spellings."""
    around = _AROUND.get(framework, ("{}",))
    return {
        meaning: [[tuple(frame.format(name) for frame in around) for name in sums] for sums in parse(names[framework])]
        for meaning, names in METRIC_NAMES.items()
        if framework in names
    }


def meanings(framework: str, values: Mapping[str, float]) -> dict[str, float]:
    """Return what a step's metrics say, by meaning; a name with ``*`` that several have says nothing."""
    found: dict[str, float] = {}
    for meaning, choices in spellings(framework).items():
        for sums in choices:
            known = [value for names in sums if (value := _value(names, values)) is not None]
            if known:
                found[meaning] = sum(known)
                break
    return found


@lru_cache(maxsize=1024)
def frameworks_of(names: frozenset[str]) -> dict[str, int]:
    """Count, for each framework, the meanings that the names carry; those without any are left out."""
    present = dict.fromkeys(names, 0.0)
    counts = {framework: len(meanings(framework, present)) for framework in FRAMEWORKS}
    return {framework: count for framework, count in counts.items() if count}


def likeliest(names: Collection[str]) -> str | None:
    """Return the framework whose names these are; None if there is none, or several fit as well."""
    counts = frameworks_of(frozenset(names))
    best = max(counts.values(), default=0)
    first = [framework for framework, count in counts.items() if count == best]
    return first[0] if len(first) == 1 else None


def _value(names: Iterable[str], values: Mapping[str, float]) -> float | None:
    for name in names:
        if "*" in name:
            pattern = _pattern(name)
            matches = [value for given, value in values.items() if pattern.fullmatch(given)]
            if len(matches) == 1:
                return matches[0]
        elif name in values:
            return values[name]
    return None


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\*", "[^/]+"))

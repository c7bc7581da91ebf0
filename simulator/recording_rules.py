"""What each field of a recording file may hold: a test of its value, and that in words.

What the engine is limited by has the bounds of `engine_options`; the rest those of the kernel's own numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

from rollsim.simulator.engine_options import RANGES
from rollsim.simulator.limits import MAX_RATE

POLICIES = ("fcfs", "priority")
NOT_MODELLED = {"num_lookahead_tokens": 0, "scheduler_reserve_full_isl": True, "use_v2_model_runner": False}
_INT32 = 2**31 - 1
_INT64 = 2**63 - 1


@dataclass(frozen=True)
class Rule:
    """Whether a value may stand in a field, and what may."""

    is_valid: Callable[[Any], bool]
    allowed: str


def is_whole(value: object, low: int = 0, high: int = _INT32) -> bool:
    """Whether a value is a whole number in a range."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_name(value: object) -> TypeGuard[str]:
    """Whether a value is text and not empty."""
    return isinstance(value, str) and value != ""


def whole(low: int = 0, high: int = _INT32) -> Rule:
    """A whole number in a range."""
    return Rule(lambda value: is_whole(value, low, high), f"a whole number from {low} to {high}")


def or_null(rule: Rule) -> Rule:
    """What a rule allows, or null."""
    return Rule(lambda value: value is None or rule.is_valid(value), f"{rule.allowed}, or null")


FLAG = Rule(lambda value: isinstance(value, bool), "true, false")
NAME = Rule(is_name, "text")
COUNT = whole(0, _INT64)
TOKENS = whole(1)
_DRAFTS = whole(0, MAX_RATE - 1)

CONFIG = {
    "max_num_seqs": whole(*RANGES["max_num_seqs"]),
    "max_num_batched_tokens": whole(*RANGES["max_num_batched_tokens"]),
    "block_size": whole(*RANGES["block_size"]),
    "num_gpu_blocks": whole(1, RANGES["num_gpu_blocks_override"][1]),
    "max_model_len": whole(*RANGES["max_model_len"]),
    "long_prefill_token_threshold": whole(*RANGES["long_prefill_token_threshold"]),
    "watermark_blocks": whole(0, RANGES["num_gpu_blocks_override"][1]),
    "prefix_caching": FLAG,
    "chunked_prefill": FLAG,
    "policy": Rule(lambda value: value in POLICIES, ", ".join(POLICIES)),
}
OPTIONAL_CONFIG = {
    "max_num_scheduled_tokens": CONFIG["max_num_batched_tokens"],
    "max_num_active_seqs": CONFIG["max_num_seqs"],
    "long_prefill_token_threshold_adaptive": FLAG,
    "spec": Rule(
        lambda value: isinstance(value, dict) and _DRAFTS.is_valid(value.get("num_speculative_tokens", 0)),
        f"an object, with num_speculative_tokens {_DRAFTS.allowed}",
    ),
}
UPDATE = Rule(
    lambda value: (
        isinstance(value, dict)
        and is_whole(value.get("after_step"))
        and value.get("mode", "keep") == "keep"
        and isinstance(value.get("clear_cache"), bool)
    ),
    f"after_step {whole().allowed}, mode keep, clear_cache true or false",
)
REQUEST = {
    "id": NAME,
    "prompt_tokens": TOKENS,
    "output_tokens": TOKENS,
    "group": or_null(NAME),
    "before_step": whole(),
    "priority": whole(-_INT32, _INT32),
    "abort_after_step": or_null(whole()),
    "resume_of": or_null(Rule(is_name, "an id")),
}
# Lists with one entry per row.
STEPS = {
    "prefill_chunks": Rule(
        lambda step: isinstance(step, dict) and all(map(TOKENS.is_valid, step.values())),
        f"an object: id -> tokens, {TOKENS.allowed}",
    ),
    "preempted": Rule(lambda step: isinstance(step, list) and all(map(is_name, step)), "a list of ids"),
    "spec_steps": Rule(
        lambda step: (
            isinstance(step, dict)
            and all(
                isinstance(spec, list) and len(spec) == 4 and all(map(_DRAFTS.is_valid, spec[:3]))
                and is_whole(spec[3]) and spec[2] <= spec[0]
                for spec in step.values()
            )
        ),
        f"an object: id -> [proposed, scheduled, accepted, appended], {_DRAFTS.allowed}, accepted up to proposed",
    ),
}  # fmt: skip
OUTPUT_IDS = Rule(
    lambda value: (
        isinstance(value, dict)
        and all(isinstance(tokens, list) and all(map(is_whole, tokens)) for tokens in value.values())
    ),
    f"an object: id -> list of token ids, {whole().allowed}",
)
RESULT_FIELD = Rule(
    lambda value: value is None or isinstance(value, str) or is_whole(value, -_INT64, _INT64),
    "a whole number, text or null",
)

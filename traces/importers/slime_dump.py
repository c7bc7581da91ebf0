"""slime's rollout dump: ``rollout_{id}.pt``, a pickle with every sample of a rollout and, traced, its calls."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.fields import Fields
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.restricted_pickle import load_plain

DUMP = "rollout dump"
_STATUS = {
    "completed": ("finished", "stop"), "truncated": ("finished", "length"), "aborted": ("aborted", "abort"),
    "failed": ("failed", "error"), "pending": ("in_flight", None),
}  # fmt: skip
_NAME = re.compile(r"(rollout|data)_?\d+$")
_CALLS = {"sglang_generate": "generate", "reward_model": "reward", "group_reward_model": "reward"}


def is_dump(file: LogFile) -> bool:
    """Tell whether a file is one, by its name alone: it is not opened to find out."""
    return file.suffix in (".pt", ".pkl") and _NAME.search(file.stem) is not None


def read_dumps(files: Sequence[LogFile], draft: Draft) -> None:
    """Read a trajectory a sample.

    Raises
    ------
    BadInput
        If pickles may not be opened.
    """
    if files and not draft.options.allow_pickle:
        what = "is a pickle, which can run code when it is opened"
        allowed = "--allow-pickle, to open it restricted to plain values: nothing in it is called"
        raise BadInput(Fault(f"{draft.path}: {files[0].name}", message=what, allowed=allowed))
    for file in files:
        try:
            data = file.path.read_bytes()
            document = load_plain(data)
        except (OSError, ValueError) as error:
            draft.damage.add("a dump that cannot be opened, and is left out", file.name, str(error))
            continue
        if draft.done:
            draft.done(len(data))
        dump = Fields(document if isinstance(document, dict) else {}, file.name, draft.damage)
        step = dump.count("rollout_id")
        samples = dump.listed("samples")
        if not samples:
            draft.damage.add("a dump without samples", file.name)
        for number, entry in enumerate(samples, start=1):
            place = f"{file.name} sample {number}"
            if isinstance(entry, dict):
                _sample(Fields(entry, place, draft.damage), step, draft)
            else:
                draft.damage.add("a sample is no plain dictionary, and is left out", place, type(entry).__name__)
    if files:
        draft.derived.append("output tokens: the sum of the loss mask; what else follows the prompt is environment's")


def _sample(fields: Fields, step: int | None, draft: Draft) -> None:
    tokens, response, mask = fields.listed("tokens"), fields.count("response_length"), fields.row.get("loss_mask")
    output = sum(map(bool, mask)) if isinstance(mask, list) and len(mask) == response else response
    prompt = None if response is None or not tokens else len(tokens) - response
    if prompt is not None and prompt < 0:
        draft.damage.add("fewer tokens than response_length; no prompt length", fields.place, len(tokens))
        prompt = None
    status, reason = _STATUS.get(str(fields.row.get("status")), (None, None))
    if status is None and fields.row.get("status") is not None:
        draft.damage.add("an unknown status, not used", fields.place, fields.row["status"], ", ".join(_STATUS))
    versions = [number for value in fields.listed("weight_versions") if (number := _version(value)) is not None]
    cache = fields.inner("prefix_cache_info")
    # It is summed over calls: only of one call is it what the prompt found.
    cached = cache.count("cached_tokens") if cache.count("total_prompt_tokens") == prompt else None
    index = fields.text("index")
    name = f"{step}/{fields.place if index is None else index}"
    draft.rollouts.add(
        {
            "framework": "slime",
            "sample_id": name,
            "step_trained": step,
            "group_id": fields.count("group_index"),
            "prompt_tokens": prompt,
            "output_tokens": output,
            "env_tokens": None if response is None or output is None else response - output,
            "reward": fields.number("reward") if not isinstance(fields.row.get("reward"), dict) else None,
            "status": status,
            "finish_reason": reason,
            "is_truncated": None if status is None else reason == "length",
            "fate": "undecided",
            "version_start": min(versions, default=None),
            "version_end": versions[-1] if versions else None,
            "cached_tokens": cached,
            "tool_s": fields.seconds("non_generation_time") or None,
            **_traced(fields.inner("trace"), name, draft),
        }
    )


def _version(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _traced(trace: Fields, name: str, draft: Draft) -> dict[str, object]:
    """Add the traced spans to the segments; return the times of the trajectory."""
    begun: dict[object, float] = {}
    spans: list[tuple[str, float, float]] = []
    for entry in trace.listed("events"):
        event = Fields(entry if isinstance(entry, dict) else {}, trace.place, draft.damage)
        kind, what, t_s = event.text("type"), event.text("name"), event.seconds("ts")
        if what not in _CALLS or t_s is None:
            continue
        span = event.text("span_id")
        if kind == "span_start":
            begun[span] = t_s
        elif kind == "span_end" and span in begun:
            begin = begun.pop(span)
            if t_s < begin:
                draft.damage.add("a span that ends before it starts; not used", trace.place, t_s)
                continue
            tokens = event.inner("attrs").count("completion_tokens")
            draft.segments.add({"sample_id": name, "kind": _CALLS[what], "tokens": tokens, "t0_s": begin, "t1_s": t_s})
            spans.append((_CALLS[what], begin, t_s))
    calls = [(begin, end) for kind, begin, end in spans if kind == "generate"]
    rewards = [(begin, end) for kind, begin, end in spans if kind == "reward"]
    if not calls:
        return {}
    overlap = any(after[0] < before[1] for before, after in pairwise(sorted(calls)))
    return {
        "attempt": trace.count("attempt"),
        "num_turns": len(calls),
        "t_submit_s": min(begin for begin, _ in calls),
        "t_end_s": max(end for _, end in calls),
        "t_final_s": max((end for _, end in rewards), default=None),
        "gen_s": None if overlap else math.fsum(end - begin for begin, end in calls),
        "reward_s": math.fsum(end - begin for begin, end in rewards) if rewards else None,
    }

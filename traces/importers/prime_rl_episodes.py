"""prime-rl's episodes: ``rollouts/step_N/{train,eval}/{all,effective}/traces.jsonl``, each call with its times.

A time of 0.0 is one that was not taken, a call's ``prompt_tokens`` leave out what the prefix cache had
(``cached_input_tokens``), and an episode's own ``step`` is that of its dispatch; the folder's is that of its training.
"""

import re
from collections.abc import Sequence

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.fields import Fields
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.forms import Forms
from rollsim.traces.importers.lines import json_lines
from rollsim.traces.importers.text import Groups

EPISODES = "episodes"
_STEP = re.compile(r"step_(\d+)/")
_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed")
_FINISH = {"length": "length", "stop": "stop", "tool_calls": "stop", "abort": "abort", "error": "error"}


def is_episodes(file: LogFile) -> bool:
    """Tell whether a file is one."""
    return file.suffix == ".jsonl" and file.object_with("traces", "run") is not None


def read_episodes(files: Sequence[LogFile], draft: Draft) -> None:
    """Read one trajectory a trace; where all and effective ones are there, the effective were trained on."""
    train = [file for file in files if "/eval/" not in _place(file)]
    if len(train) < len(files):
        draft.found.append(f"{len(files) - len(train)} files of evaluation are left out")
    effective = {_step(file): file for file in train if "/effective/" in _place(file)}
    complete = [file for file in train if "/effective/" not in _place(file)]
    groups, forms = Groups(), Forms(("id", "env", "run", "traces"))
    for file in complete or list(effective.values()):
        used = effective.get(_step(file)) if complete else None
        kept = None if used is None else {str(row.get("id")) for _, row in json_lines(used, draft.damage, draft.done)}
        for place, row in json_lines(file, draft.damage, draft.done):
            forms.see(row, place)
            fate = "undecided" if complete else "trained"
            if kept is not None:
                fate = "trained" if str(row.get("id")) in kept else "discarded"
            _episode(Fields(row, place, draft.damage), _step(file), fate, groups, draft)
    forms.report(draft.damage)
    if effective and complete:
        draft.derived.append("trained on: the episodes that are in effective too; the others were discarded")
    draft.derived.append("version when training began: the number of the step, since prime-rl publishes one a step")
    draft.derived.append("prompt tokens of a call: those computed and those from the prefix cache")
    draft.derived.append("time in tools: what the harness took beside model calls")
    draft.derived.append("environment tokens: what the prompts of later calls hold beyond the calls before them")


def _step(file: LogFile) -> int | None:
    found = _STEP.search(_place(file))
    return int(found[1]) if found else None


def _place(file: LogFile) -> str:
    """The folders that say what a file holds: ``/step_N/{train,eval}/{all,effective}/``."""
    return f"/{'/'.join(file.path.absolute().parts[-4:])}"


def _episode(fields: Fields, step: int | None, fate: str, groups: Groups, draft: Draft) -> None:
    name = fields.text("id") or fields.place
    policy = fields.inner("run").inner("work").inner("policy")
    group = fields.inner("group").text("id")
    for number, entry in enumerate(fields.listed("traces")):
        trace = Fields(entry if isinstance(entry, dict) else {}, fields.place, draft.damage)
        sample = f"{name}/{number}"
        timing = trace.inner("timing")
        agent, scoring = timing.inner("agent"), timing.inner("scoring")
        draft.rollouts.add(
            {
                "framework": "prime-rl",
                "run_id": fields.inner("env").text("name") or fields.inner("env").text("id"),
                "sample_id": sample,
                "step_trained": step if fate != "discarded" else None,
                "group_id": None if group is None else groups.number(group),
                "version_start": policy.count("start"),
                "version_end": policy.count("end"),
                "version_trained": step if fate != "discarded" else None,
                "t_submit_s": _moment(timing, "start"),
                "tool_s": agent.inner("harness").seconds("duration") if _moment(agent, "end") else None,
                "reward_s": _length_s(scoring),
                "t_final_s": _moment(scoring, "end"),
                "reward": _reward(trace),
                "status": "finished" if trace.row.get("is_completed", True) else "aborted",
                "fate": fate,
                **_calls(trace, sample, draft),
            }
        )


def _calls(trace: Fields, sample: str, draft: Draft) -> dict[str, object]:
    """Add the model calls to the segments; return what they say of the trajectory."""
    calls = [
        Fields(call if isinstance(call, dict) else {}, trace.place, trace.damage) for call in trace.listed("calls")
    ]
    if not calls:
        return {"num_turns": 0}
    usage = [call.inner("usage") for call in calls]
    prompts, outputs = ([entry.count(name) for entry in usage] for name in ("prompt_tokens", "completion_tokens"))
    cached = [entry.count("cached_input_tokens") for entry in usage]
    prompts = [None if new is None else new + (old or 0) for new, old in zip(prompts, cached, strict=True)]
    begins, ends = ([_moment(call.inner("time"), name) for call in calls] for name in ("start", "end"))
    for begin, end, tokens in zip(begins, ends, outputs, strict=True):
        if begin is not None and end is not None and end >= begin:
            draft.segments.add({"sample_id": sample, "kind": "generate", "tokens": tokens, "t0_s": begin, "t1_s": end})
        elif begin is not None and end is not None:
            draft.damage.add("a call that ends before it starts; its times are not used", trace.place, end)
    known = [count for count in outputs if count is not None]
    whole = len(known) == len(calls)
    added = None
    if whole and prompts[0] is not None and prompts[-1] is not None:
        added = prompts[-1] - prompts[0] - sum(known[:-1])
    last = calls[-1].text("finish_reason")
    times = [(t0, t1) for t0, t1 in zip(begins, ends, strict=True) if t0 is not None and t1 is not None and t1 >= t0]
    return {
        "num_turns": len(calls),
        "prompt_tokens": prompts[0],
        "output_tokens": sum(known) if whole else None,
        "env_tokens": added if added is not None and added >= 0 else None,
        "finish_reason": _FINISH.get(last or ""),
        "is_truncated": None if last is None else last == "length" or trace.row.get("stop_condition") in _LIMITS,
        "cached_tokens": cached[0],
        "t_start_s": min((t0 for t0, _ in times), default=None),
        "t_end_s": max((t1 for _, t1 in times), default=None),
        "gen_s": sum(t1 - t0 for t0, t1 in times) if times else None,
    }


def _reward(trace: Fields) -> float | None:
    """The weighted sum of a trace's rewards."""
    rewards = trace.inner("rewards")
    total, known = 0.0, False
    for name in rewards.row:
        entry = rewards.inner(name)
        score, weight = entry.number("score"), entry.number("weight")
        if score is not None:
            total, known = total + score * (1.0 if weight is None else weight), True
    return total if known else None


def _moment(span: Fields, name: str) -> float | None:
    """Return a time that was taken."""
    return span.seconds(name) or None


def _length_s(span: Fields) -> float | None:
    """Return the seconds of a span whose ends were taken."""
    begin, end = _moment(span, "start"), _moment(span, "end")
    return None if begin is None or end is None or end < begin else end - begin

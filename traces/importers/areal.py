"""AReaL: trajectories, sessions and the performance trace, and step metrics of a tracker."""

from rollsim.traces.importers import areal_rollouts, chrome_spans, trackers
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish


def _claims(file: LogFile) -> str | None:
    if kind := areal_rollouts.kind_of(file):
        return kind
    if chrome_spans.is_spans(file):
        return chrome_spans.SPANS
    return trackers.tracker_kind(file, "areal")


def _read(files: Files, draft: Draft) -> None:
    trajectories, sessions = (files.get(kind, ()) for kind in (areal_rollouts.TRAJECTORIES, areal_rollouts.SESSIONS))
    if trajectories or sessions:
        areal_rollouts.read_rollouts(trajectories, sessions, draft)
    for file in files.get(chrome_spans.SPANS, ()):
        chrome_spans.read_spans(file, draft)
    trackers.read_trackers(files, draft)


IMPORTER = Importer(
    "areal",
    (
        "VERSION/TASK.jsonl with `task_id`, `seqlen` and `prompt_len`",
        "sessions-rN.jsonl with `task_id`, `session_id` and `status`",
        "traces-rN.jsonl with `name`, `ph` and `ts`",
        trackers.LOOKS_FOR,
    ),
    _claims,
    _read,
    (
        Wish("rollouts.output_tokens", "lengths, versions and rewards of trajectories", "rollout.dump_to_file=true"),
        Wish("rollouts.t_end_s", "times of trajectories", "perf_tracer.session_tracer.enabled=true"),
        Wish("rollouts.version_start", "oldest versions", "no setting: head_version is -1, the prompts'"),
        Wish("rollouts.step_trained", "the step that trained on each", "no setting writes it"),
        Wish(
            "rollouts.is_truncated",
            "which were cut at the limit",
            "no setting writes it",
        ),
        Wish("spans", "what trainer and engines did", "perf_tracer.enabled=true"),
        Wish(
            "steps",
            "step metrics",
            "stats_logger.tensorboard.path=DIR (or W&B, and its history as CSV)",
        ),
    ),
)

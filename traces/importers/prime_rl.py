"""prime-rl: its episodes, and ``metrics.jsonl`` or step metrics of a tracker."""

from rollsim.traces.importers import prime_rl_episodes, trackers
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish

METRICS = "metrics"


def _claims(file: LogFile) -> str | None:
    if prime_rl_episodes.is_episodes(file):
        return prime_rl_episodes.EPISODES
    if file.suffix == ".jsonl" and file.object_with("step", "time"):
        return METRICS
    return trackers.tracker_kind(file, "prime-rl")


def _read(files: Files, draft: Draft) -> None:
    for file in files.get(METRICS, ()):
        trackers.read_history(file, draft)
    trackers.read_trackers(files, draft)
    if episodes := files.get(prime_rl_episodes.EPISODES):
        prime_rl_episodes.read_episodes(episodes, draft)


IMPORTER = Importer(
    "prime-rl",
    (
        "rollouts/step_N/train/all/traces.jsonl with `traces` and `run`",
        "metrics.jsonl with `step` and `time`",
        trackers.LOOKS_FOR,
    ),
    _claims,
    _read,
    (
        Wish("steps", "step times and metrics", "the file monitor, on by default: {output_dir}/metrics.jsonl"),
        Wish("rollouts", "single trajectories", "the file monitor, on by default: {output_dir}/rollouts/step_N"),
        Wish("rollouts.replica", "the engine of each trajectory", "no setting writes it"),
        Wish("rollouts.t_first_token_s", "first tokens", "no setting writes them"),
    ),
)

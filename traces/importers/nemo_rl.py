"""NeMo-RL: its train data, and step metrics of a tracker."""

from rollsim.traces.importers import nemo_rl_samples, trackers
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish

_TRACKER = "logger.wandb_enabled=true or logger.tensorboard_enabled=true"


def _claims(file: LogFile) -> str | None:
    if nemo_rl_samples.is_samples(file):
        return nemo_rl_samples.SAMPLES
    return trackers.tracker_kind(file, "nemo-rl")


def _read(files: Files, draft: Draft) -> None:
    if samples := files.get(nemo_rl_samples.SAMPLES):
        nemo_rl_samples.read_samples(samples, draft)
    trackers.read_trackers(files, draft)


IMPORTER = Importer(
    "nemo-rl",
    (
        "train_data_stepN.jsonl with `input_lengths`, `token_loss_mask` and `rewards`",
        "metrics.json with names, steps and values",
        trackers.LOOKS_FOR,
    ),
    _claims,
    _read,
    (
        Wish("steps", "step times and metrics", _TRACKER),
        Wish("rollouts", "single trajectories", "on by default in logger.log_dir, unless Gym responses are logged"),
        Wish("rollouts.output_tokens", "lengths of trajectories", "a NeMo-RL that writes token_loss_mask"),
        Wish("rollouts.t_end_s", "times of trajectories", "no setting writes them"),
        Wish("rollouts.version_start", "versions of the weights", "no setting; train/avg_trajectory_age is a mean"),
        Wish("rollouts.is_truncated", "which were cut at the limit", "no setting; train/truncation_rate is a mean"),
    ),
)

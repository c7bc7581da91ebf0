"""slime: step metrics, printed as ``perf 3: {...}`` or of a tracker, and its rollout dump."""

from rollsim.traces.importers import console, slime_dump, trackers
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish

_TRACKER = "--use-tensorboard or --use-wandb; or keep the console output"


def _claims(file: LogFile) -> str | None:
    if slime_dump.is_dump(file):
        return slime_dump.DUMP
    if console.console_kind(file) == console.DICTS:
        return console.DICTS
    return trackers.tracker_kind(file, "slime")


def _read(files: Files, draft: Draft) -> None:
    slime_dump.read_dumps(files.get(slime_dump.DUMP, ()), draft)
    for file in files.get(console.DICTS, ()):
        console.read_dicts(file, draft)
    trackers.read_trackers(files, draft)


IMPORTER = Importer(
    "slime",
    (
        "rollout_N.pt of --save-debug-rollout-data or --dump-details",
        "console output with `perf N: {...}` and `rollout N: {...}`",
        trackers.LOOKS_FOR,
    ),
    _claims,
    _read,
    (
        Wish("steps", "step times and metrics", _TRACKER),
        Wish("rollouts", "single trajectories", "--save-debug-rollout-data DIR/rollout_{rollout_id}.pt"),
        Wish("rollouts.t_end_s", "times of trajectories", "--dump-details DIR of a slime whose samples carry a trace"),
        Wish(
            "rollouts.max_output_tokens", "the limit of responses", "it is --rollout-max-response-len; no file has it"
        ),
    ),
)

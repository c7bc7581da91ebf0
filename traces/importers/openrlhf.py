"""OpenRLHF: step metrics, printed as ``Global step 3: {...}`` or of a tracker. It has no dump of its rollouts."""

from rollsim.traces.importers import console, trackers
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish

_TRACKER = "--logger.tensorboard_dir DIR or --logger.wandb.key KEY; or keep the console output"


def _claims(file: LogFile) -> str | None:
    if console.console_kind(file) == console.GLOBAL_DICTS:
        return console.GLOBAL_DICTS
    return trackers.tracker_kind(file, "openrlhf")


def _read(files: Files, draft: Draft) -> None:
    for file in files.get(console.GLOBAL_DICTS, ()):
        console.read_dicts(file, draft)
    trackers.read_trackers(files, draft)


IMPORTER = Importer(
    "openrlhf",
    ("console output with `Global step N: {...}`", trackers.LOOKS_FOR),
    _claims,
    _read,
    (
        Wish("steps", "step times and metrics", _TRACKER),
        Wish("rollouts", "lengths of single responses", "OpenRLHF has no setting that writes them"),
    ),
)

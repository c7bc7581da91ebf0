"""slime: step metrics, printed as ``perf 3: {...}`` or of a tracker."""

from rollsim.traces.importers import console, trackers
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish


def _claims(file: LogFile) -> str | None:
    if console.console_kind(file) == console.DICTS:
        return console.DICTS
    return trackers.tracker_kind(file, "slime")


def _read(files: Files, draft: Draft) -> None:
    for file in files.get(console.DICTS, ()):
        console.read_dicts(file, draft)
    trackers.read_trackers(files, draft)


IMPORTER = Importer(
    "slime",
    ("console output with `perf N: {...}` and `rollout N: {...}`", trackers.LOOKS_FOR),
    _claims,
    _read,
    (Wish("steps", "step times and metrics", "keep the console output: `... 2>&1 | tee train.log`; or --use-wandb"),),
)

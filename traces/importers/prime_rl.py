"""prime-rl: ``metrics.jsonl``, or step metrics of a tracker."""

from rollsim.traces.importers import trackers
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish

METRICS = "metrics"


def _claims(file: LogFile) -> str | None:
    if file.suffix == ".jsonl" and file.object_with("step", "time"):
        return METRICS
    return trackers.tracker_kind(file, "prime-rl")


def _read(files: Files, draft: Draft) -> None:
    for file in files.get(METRICS, ()):
        trackers.read_history(file, draft)
    trackers.read_trackers(files, draft)


IMPORTER = Importer(
    "prime-rl",
    ("metrics.jsonl with `step` and `time`", trackers.LOOKS_FOR),
    _claims,
    _read,
    (Wish("steps", "step times and metrics", "file monitor on (default): {output_dir}/metrics.jsonl"),),
)

"""AReaL: step metrics of a tracker."""

from rollsim.traces.importers import trackers
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Importer, Wish


def _claims(file: LogFile) -> str | None:
    return trackers.tracker_kind(file, "areal")


IMPORTER = Importer(
    "areal",
    (trackers.LOOKS_FOR,),
    _claims,
    trackers.read_trackers,
    (Wish("steps", "step times and metrics", "stats_logger.wandb.mode=online, then its history as CSV"),),
)

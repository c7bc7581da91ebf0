"""NeMo-RL: step metrics of a tracker."""

from rollsim.traces.importers import trackers
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Importer, Wish

_TRACKER = "logger.wandb_enabled=true or logger.tensorboard_enabled=true"


def _claims(file: LogFile) -> str | None:
    return trackers.tracker_kind(file, "nemo-rl")


IMPORTER = Importer(
    "nemo-rl",
    (trackers.LOOKS_FOR,),
    _claims,
    trackers.read_trackers,
    (Wish("steps", "step times and metrics", _TRACKER),),
)

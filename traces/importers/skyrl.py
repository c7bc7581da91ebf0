"""SkyRL: step metrics of a tracker. Its batch dump is a pickle of tensors without names, and is not read."""

from rollsim.traces.importers import trackers
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Importer, Wish


def _claims(file: LogFile) -> str | None:
    return trackers.tracker_kind(file, "skyrl")


IMPORTER = Importer(
    "skyrl",
    (trackers.LOOKS_FOR,),
    _claims,
    trackers.read_trackers,
    (
        Wish("steps", "step times and metrics", "trainer.logger=tensorboard, or wandb and then its history as CSV"),
        Wish("rollouts", "lengths of single responses", "no setting gives them without a pickle of tensors"),
    ),
)

"""TRL: step metrics of ``trainer_state.json``, which every checkpoint has, or of a tracker."""

from rollsim.traces.importers import trackers
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.fields import Fields
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish
from rollsim.traces.importers.lines import whole_json

STATE = "trainer state"


def _claims(file: LogFile) -> str | None:
    if file.stem == "trainer_state" and file.suffix == ".json":
        return STATE
    return trackers.tracker_kind(file, "trl")


def _read(files: Files, draft: Draft) -> None:
    states = files.get(STATE, ())
    if len(states) > 1:
        draft.found.append(f"{len(states)} checkpoints: the last one, {states[-1].name}, holds the log of all")
    for file in states[-1:]:
        _read_state(file, draft)
    trackers.read_trackers(files, draft)


def _read_state(file: LogFile, draft: Draft) -> None:
    document = whole_json(file, draft.damage, draft.done)
    if not isinstance(document, dict):
        return
    history = Fields(document, file.name, draft.damage).listed("log_history")
    for number, row in enumerate(history, start=1):
        place = f"{file.name}, log_history {number}"
        if isinstance(row, dict):
            draft.steps.add(row.get("step"), {name: value for name, value in row.items() if name != "step"}, place)
        else:
            draft.damage.add("a record is no object, and is left out", place, row)


IMPORTER = Importer(
    "trl",
    ("trainer_state.json of a checkpoint", trackers.LOOKS_FOR),
    _claims,
    _read,
    (
        Wish("steps", "step times and metrics", "save_strategy='steps' (trainer_state.json) and logging_steps=1"),
        Wish("steps.ended_s", "the time of a step", "a TRL that logs step_time; the async trainer does not"),
    ),
)

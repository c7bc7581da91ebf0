"""TRL: step metrics of ``trainer_state.json``, which every checkpoint has, or of a tracker, and its completions."""

from rollsim.traces.importers import trackers, trl_completions
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.fields import Fields
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish
from rollsim.traces.importers.lines import whole_json

STATE = "trainer state"
_TOKENS = "the log is text: give --tokenizer tokenizer.json of the model; no setting of TRL writes counts"


def _claims(file: LogFile) -> str | None:
    if file.stem == "trainer_state" and file.suffix == ".json":
        return STATE
    if trl_completions.is_completions(file):
        return trl_completions.COMPLETIONS
    return trackers.tracker_kind(file, "trl")


def _read(files: Files, draft: Draft) -> None:
    states = files.get(STATE, ())
    if len(states) > 1:
        draft.found.append(f"{len(states)} checkpoints: the last one, {states[-1].name}, holds the log of all")
    for file in states[-1:]:
        _read_state(file, draft)
    trackers.read_trackers(files, draft)
    if completions := files.get(trl_completions.COMPLETIONS):
        trl_completions.read_completions(completions, draft)


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
    (
        "trainer_state.json of a checkpoint",
        "completions/completions_STEP.parquet with `step`, `prompt` and `completion`",
        trackers.LOOKS_FOR,
    ),
    _claims,
    _read,
    (
        Wish("steps", "step times and metrics", "save_strategy='steps' (trainer_state.json) and logging_steps=1"),
        Wish("rollouts", "groups and rewards of single completions", "log_completions=True"),
        Wish("rollouts.output_tokens", "lengths of single completions", _TOKENS),
        Wish("rollouts.is_truncated", "which were cut at the limit", "no setting; completions/clipped_ratio is a mean"),
        Wish("rollouts.t_end_s", "times of completions", "no setting writes them"),
        Wish("steps.ended_s", "the time of a step", "a TRL that logs step_time; the async trainer does not"),
    ),
)

"""verl: its file logger, its console, or step metrics of a tracker."""

from rollsim.traces.importers import console, trackers
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish
from rollsim.traces.importers.lines import json_lines

METRICS = "metrics"


def _claims(file: LogFile) -> str | None:
    if file.suffix == ".jsonl" and file.object_with("step", "data"):
        return METRICS
    if console.console_kind(file) == console.PAIRS:
        return console.PAIRS
    return trackers.tracker_kind(file, "verl")


def _read(files: Files, draft: Draft) -> None:
    for file in files.get(METRICS, ()):
        _read_metrics(file, draft)
    consoles = files.get(console.PAIRS, ())
    if consoles and len(draft.steps):
        draft.found.append("console output is not read: the file logger has the same with all digits")
    elif consoles:
        for file in consoles:
            console.read_pairs(file, draft)
        draft.derived.append("metrics are those printed, rounded to three decimals")
    trackers.read_trackers(files, draft)


def _read_metrics(file: LogFile, draft: Draft) -> None:
    for place, row in json_lines(file, draft.damage, draft.done):
        data = row.get("data")
        if isinstance(data, dict):
            draft.steps.add(row.get("step"), data, place)
        else:
            draft.damage.add("a record without data, which is left out", place, data, "an object of metrics")


IMPORTER = Importer(
    "verl",
    (
        "the file logger's .jsonl with `step` and `data`",
        "console output with `step:N - name:value - ...`",
        trackers.LOOKS_FOR,
    ),
    _claims,
    _read,
    (
        Wish(
            "steps",
            "step times and metrics",
            "trainer.logger=['console','file'] and VERL_FILE_LOGGER_ROOT=DIR (writes DIR/PROJECT/EXPERIMENT.jsonl)",
        ),
        Wish("steps.gpus", "the number of GPUs", "a verl that logs perf/throughput and perf/total_num_tokens"),
    ),
)

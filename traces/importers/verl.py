"""verl: its file logger, its console or step metrics of a tracker, and its rollout dump."""

from rollsim.traces.importers import console, trackers, verl_dump
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish
from rollsim.traces.importers.lines import json_lines

METRICS = "metrics"
_TOKENS = "the dump is text: give --tokenizer tokenizer.json of the model; no setting of verl writes counts"
_INSIGHT = "trainer.logger=['console','rl_insight'] traces them to a server; rollsim does not read that yet"
_LIMIT = "step metrics beside the dump (trainer.logger=['console','file']), with --tokenizer"


def _claims(file: LogFile) -> str | None:
    if verl_dump.is_dump(file):
        return verl_dump.DUMP
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
        draft.derived.append("metrics are those printed, by older versions in three decimals")
    trackers.read_trackers(files, draft)
    if dumps := files.get(verl_dump.DUMP):
        verl_dump.read_dumps(dumps, draft)


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
        "STEP.jsonl of trainer.rollout_data_dir with `input`, `output` and `score`",
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
        Wish("rollouts", "groups and rewards of single trajectories", "trainer.rollout_data_dir=DIR"),
        Wish("rollouts.output_tokens", "lengths of single trajectories", _TOKENS),
        Wish("rollouts.is_truncated", "which trajectories were cut at the limit", _LIMIT),
        Wish("rollouts.t_end_s", "times of trajectories", _INSIGHT),
        Wish("rollouts.version_start", "versions of the weights", "no setting: verl keeps them in memory alone"),
        Wish("steps.gpus", "the number of GPUs", "a verl that logs perf/throughput and perf/total_num_tokens"),
    ),
)

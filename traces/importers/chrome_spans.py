"""Chrome trace events as AReaL's performance trace writes them, one a line: ``traces-r{rank}.jsonl``."""

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.fields import Fields
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.lines import json_lines

SPANS = "performance trace"


def is_spans(file: LogFile) -> bool:
    """Tell whether a file is one."""
    return file.suffix == ".jsonl" and file.object_with("name", "ph", "ts") is not None


def read_spans(file: LogFile, draft: Draft) -> None:
    """Read complete events (``X``, microseconds); others are marks without a duration, and passed over."""
    marks = 0
    for place, row in json_lines(file, draft.damage, draft.done):
        if row.get("ph") != "X":
            marks += 1
            continue
        fields = Fields(row, place, draft.damage)
        begin_us, length_us = fields.seconds("ts"), fields.seconds("dur")
        if begin_us is None or length_us is None:
            continue
        lane = f"{file.stem} {fields.text('cat') or ''}".strip()
        t0_s = begin_us / 1e6
        draft.spans.add({"lane": lane, "name": fields.text("name"), "t0_s": t0_s, "t1_s": t0_s + length_us / 1e6})
    if marks:
        draft.found.append(f"{marks:,} events of {file.name} without a duration are passed over")

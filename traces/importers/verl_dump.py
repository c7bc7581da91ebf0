"""verl's rollout dump: ``{step}.jsonl`` with prompt, response and score of each trajectory, as text."""

from collections.abc import Sequence
from pathlib import PurePath

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.fields import Fields
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.forms import Forms
from rollsim.traces.importers.lines import json_lines
from rollsim.traces.importers.text import Counter, Groups

DUMP = "rollout dump"


def is_dump(file: LogFile) -> bool:
    """Tell whether a file is one."""
    return file.suffix == ".jsonl" and file.object_with("input", "output", "score") is not None


def read_dumps(files: Sequence[LogFile], draft: Draft) -> None:
    """Read one row a line; the group is that of the ``uid``, or of equal prompts within a step."""
    counter, groups = Counter(draft), Groups()
    train = [file for file in files if not _is_validation(file)]
    if len(train) < len(files):
        draft.found.append(f"{len(files) - len(train)} files of validation are left out")
    forms, unnamed = Forms(("input", "output", "score", "uid")), 0
    for file in train:
        own_step = int(file.stem) if file.stem.isdecimal() else None
        for place, row in json_lines(file, draft.damage, draft.done):
            forms.see(row, place)
            fields = Fields(row, place, draft.damage)
            step = fields.count("step")
            step = own_step if step is None else step
            uid = fields.text("uid")
            unnamed += uid is None
            group = groups.of_prompt(step, row.get("input")) if uid is None else groups.number(step, _sample(uid))
            name = fields.text("request_id") if uid is None else uid
            draft.rollouts.add(
                {
                    "framework": "verl",
                    "sample_id": f"{step}/{name or place}",
                    "step_trained": step,
                    "group_id": group,
                    "prompt_tokens": counter.count(row.get("input")),
                    "output_tokens": counter.count(row.get("output")),
                    "reward": fields.number("score"),
                    "status": "finished",
                    "fate": "trained",
                }
            )
    forms.report(draft.damage)
    if unnamed:
        draft.derived.append("groups: equal prompts within a step, where there is no uid")
    draft.derived.append("all trajectories of the dump were trained on: verl writes it after selection")


def _sample(uid: str) -> str:
    """The part of a uid that names the prompt: ``{sample}_{session}_{index}``, or the whole of a plain one."""
    parts = uid.rsplit("_", 2)
    return parts[0] if len(parts) == 3 else uid


def _is_validation(file: LogFile) -> bool:
    return any(part.lower().startswith("val") for part in PurePath(file.name).parts[:-1])

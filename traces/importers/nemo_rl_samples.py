"""NeMo-RL's ``train_data_step{n}.jsonl``: token ids and loss mask of each sample, of which only counts are kept."""

import re
from collections.abc import Sequence
from itertools import groupby

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.fields import Fields
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.forms import Forms
from rollsim.traces.importers.lines import json_lines
from rollsim.traces.importers.text import Groups

SAMPLES = "train data"
_STEP = re.compile(r"step_?(\d+)")


def is_samples(file: LogFile) -> bool:
    """Tell whether a file is one."""
    return file.suffix == ".jsonl" and bool(
        file.object_with("input_lengths", "rewards") or file.object_with("token_loss_mask", "rewards")
    )


def read_samples(files: Sequence[LogFile], draft: Draft) -> None:
    """Read a trajectory a line: its prompt is what comes before the first trained token, its output what is trained."""
    groups, forms = Groups(), Forms(("rewards", "input_lengths", "token_ids", "token_loss_mask"))
    for file in files:
        found = _STEP.search(file.stem)
        step = int(found[1]) if found else None
        for place, row in json_lines(file, draft.damage, draft.done):
            forms.see(row, place)
            fields = Fields({name: _only(value) for name, value in row.items()}, place, draft.damage)
            index = fields.count("idx")
            draft.rollouts.add(
                {
                    "framework": "nemo-rl",
                    "sample_id": f"{step}/{place if index is None else index}",
                    "step_trained": step,
                    "reward": fields.number("rewards"),
                    "status": "finished",
                    "fate": "trained",
                    **_lengths(fields, step, groups),
                }
            )
    forms.report(draft.damage)
    draft.derived.append("output tokens: the sum of the loss mask; prompt: what comes before; the rest: environment")
    draft.derived.append("groups: equal prompts (token ids) within a step")


def _only(value: object) -> object:
    """Take a value out of its list: NeMo-RL writes batches of one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _lengths(fields: Fields, step: int | None, groups: Groups) -> dict[str, object]:
    mask = fields.row.get("token_loss_mask")
    if mask is None:
        return {}
    total, mask = fields.count("input_lengths"), mask if isinstance(mask, list) else [mask]
    if any(value not in (0, 1) for value in mask):
        fields.damage.add("a loss mask with other values than 0 and 1; no lengths", fields.place)
        return {}
    runs = [(bool(value), len(list(run))) for value, run in groupby(mask)]
    output = sum(count for trained, count in runs if trained)
    prompt = runs[0][1] if not runs[0][0] else 0
    if not output:
        prompt = None
    rest = None if total is None or prompt is None else total - prompt - output
    if rest is not None and rest < 0:
        fields.damage.add("input_lengths is less than prompt and output; no environment tokens", fields.place, total)
        rest = None
    tokens = fields.row.get("token_ids")
    return {
        "prompt_tokens": prompt,
        "output_tokens": output,
        "env_tokens": rest,
        "num_turns": sum(1 for trained, _ in runs if trained),
        "group_id": groups.of_prompt(step, str(tokens[:prompt])) if isinstance(tokens, list) and prompt else None,
    }

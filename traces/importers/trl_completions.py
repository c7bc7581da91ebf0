"""TRL's ``completions/completions_{step}.parquet``: prompt, completion and rewards, as text and numbers."""

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.fields import Fields
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.text import Counter, Groups

COMPLETIONS = "completions"
_TEXT = ("step", "prompt", "completion", "advantage")


def is_completions(file: LogFile) -> bool:
    """Tell whether a file is one."""
    if file.suffix != ".parquet":
        return False
    try:
        return {"step", "prompt", "completion"} <= set(pq.read_schema(file.path).names)
    except (pa.ArrowException, OSError, ValueError):
        return file.stem.startswith("completions_")


def read_completions(files: Sequence[LogFile], draft: Draft) -> None:
    """Read a trajectory a row; the reward is that of the one reward function, or their sum, unweighted."""
    counter, groups = Counter(draft), Groups()
    functions: set[str] = set()
    for file in files:
        number = 0
        try:
            parquet = pq.ParquetFile(file.path)
            rewards = _reward_columns(parquet.schema_arrow)
            functions.update(rewards)
            for batch in parquet.iter_batches(1024):
                for row in batch.to_pylist():
                    number += 1
                    _add(
                        Fields(row, f"{file.name} row {number}", draft.damage), number, rewards, counter, groups, draft
                    )
        except (pa.ArrowException, OSError, ValueError) as error:
            what = "cannot be read to its end; what comes after is left out"
            draft.damage.add(what, f"{file.name} after row {number}", (str(error).splitlines() or ["damaged"])[0])
        if draft.done:
            draft.done(file.path.stat().st_size)
    if functions:
        how = "the one reward function" if len(functions) == 1 else "the sum of the reward functions, without weights"
        draft.derived.append(f"reward: {how} ({', '.join(sorted(functions))})")
    draft.derived.append("groups: equal prompts within a step")


def _reward_columns(schema: pa.Schema) -> list[str]:
    numeric = (pa.types.is_floating, pa.types.is_integer)
    return [field.name for field in schema if field.name not in _TEXT and any(test(field.type) for test in numeric)]


def _add(fields: Fields, number: int, rewards: list[str], counter: Counter, groups: Groups, draft: Draft) -> None:
    step = fields.count("step")
    # NaN is how TRL writes that a reward function does not apply.
    applied = [name for name in rewards if not _is_nan(fields.row.get(name))]
    known = [value for name in applied if (value := fields.number(name)) is not None]
    prompt = fields.row.get("prompt")
    draft.rollouts.add(
        {
            "framework": "trl",
            "sample_id": f"{step}/{number}",
            "step_trained": step,
            "group_id": groups.of_prompt(step, prompt),
            "prompt_tokens": counter.count(prompt),
            "output_tokens": counter.count(fields.row.get("completion")),
            "reward": sum(known) if known else None,
            "status": "finished",
            "fate": "trained",
        }
    )


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)

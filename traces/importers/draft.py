"""An import under way: where importers put what they read."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from rollsim.traces.importers.damage import Damage
from rollsim.traces.importers.rows import Rows
from rollsim.traces.importers.step_log import StepLog


@dataclass(frozen=True)
class Options:
    """What a user may set.

    Parameters
    ----------
    tokenizer
        A ``tokenizer.json``; without one, text is not counted.
    allow_pickle
        Whether pickles may be opened.
    columns
        For a plain file: our column to that of the file.
    """

    tokenizer: str | os.PathLike[str] | None = None
    allow_pickle: bool = False
    columns: dict[str, str] = field(default_factory=dict)


class Draft:
    """Collects what is read.

    Parameters
    ----------
    path
        What is imported.
    framework
        Whose log it is; an importer of trackers' files may find out only from the names in them.
    options
        What the user set.
    done
        Told how many more bytes were read.
    """

    def __init__(self, path: str, framework: str, options: Options, done: Callable[[int], None] | None = None) -> None:
        self.path, self.framework, self.options, self.done = path, framework, options, done
        self.damage = Damage(path)
        self.steps = StepLog(self.damage)
        self.rollouts, self.segments, self.spans, self.gauges = map(Rows, ("rollouts", "segments", "spans", "gauges"))
        self.found: list[str] = []
        self.derived: list[str] = []
        self.facts: dict[str, float] = {}

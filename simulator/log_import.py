"""An import from the words of a command line to a document and, if wanted, a run folder."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rollsim.simulator import log_report
from rollsim.simulator.run_document import log_document
from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.importers.draft import Options
from rollsim.traces.importers.log import AUTO, log_bytes, read_log
from rollsim.traces.importers.plain import columns_given
from rollsim.traces.importers.run_folder import write_import
from rollsim.traces.writer import check_target


@dataclass(frozen=True)
class Request:
    """An import to be done: `size` is what is to be read [bytes]."""

    source: str
    path: str
    options: Options
    out: str | None
    size: int


@dataclass(frozen=True)
class Outcome:
    """An import that was done."""

    document: dict[str, Any]
    wall_s: float

    def text(self) -> str:
        """Return it as text of at most 80 columns."""
        return log_report.text(self.document, self.wall_s)


def prepare(
    words: Sequence[str], columns: Sequence[str], tokenizer: str | None, out: str | None, *, allow_pickle: bool
) -> Request:
    """Check what can be checked before anything is read.

    Parameters
    ----------
    words
        ``[SOURCE] PATH``.
    columns
        ``OURS=THEIRS`` each.
    tokenizer, out, allow_pickle
        As of the command.

    Raises
    ------
    BadInput
        Names every fault of them.
    """
    if len(words) not in (1, 2):
        raise BadInput(Fault("command line", given=" ".join(words), allowed="[SOURCE] PATH"))
    if out is not None:
        check_target(out)
    given = columns_given(columns)
    source = words[0] if len(words) == 2 else "table" if given else AUTO
    return Request(source, words[-1], Options(tokenizer, allow_pickle, given), out, log_bytes(words[-1]))


def execute(request: Request, shown: Callable[[float], None]) -> Outcome:
    """Read the log, and write the run folder if one is wanted; `shown` is told how many bytes were read."""
    begin_s = time.perf_counter()
    read = 0

    def done(more: int) -> None:
        nonlocal read
        read += more
        shown(min(read, request.size))

    log = read_log(request.path, request.source, request.options, done)
    document = log_document(log.tables, log.document())
    wall_s = time.perf_counter() - begin_s
    if request.out is not None:
        write_import(log, request.out, {"format": document["format"], "log": document["log"]}, wall_s)
    return Outcome(document, wall_s)

"""A folder that rollsim wrote, as the command that wrote it showed it."""

import os
from collections.abc import Callable
from typing import Any

from rollsim.simulator import log_report, replay_report, replications_report, run_report
from rollsim.simulator.replay_run import FORMAT as REPLAY_FORMAT
from rollsim.simulator.run_document import LOG_FORMAT, stored_document
from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.replications import open_replications
from rollsim.traces.run import Run


def shown(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Callable[[], str]]:
    """Return the document of a run, or of the replications in a folder, and what lays it out.

    Raises
    ------
    BadInput
        If there is no such run, it is damaged, or several runs are no replications.
    """
    runs = open_replications(path)
    documents = [stored_document(run) for run in runs]
    if len(runs) == 1:
        layout = _LAYOUTS.get(documents[0]["format"], run_report.text)
        return documents[0], lambda: layout(documents[0], _wall_s(runs))
    if any(document["format"] == REPLAY_FORMAT for document in documents):
        names = ", ".join(run.path.name for run in runs[:3])
        allowed = f"one of them ({names}{', ...' if len(runs) > 3 else ''})"
        raise BadInput(Fault(str(path), message="holds several replays", allowed=allowed))
    seeds = [seed if isinstance(seed := run.manifest.get("seed"), int) else i for i, run in enumerate(runs)]
    order = sorted(range(len(runs)), key=seeds.__getitem__)
    document = replications_report.summary([documents[i] for i in order], [seeds[i] for i in order])
    return document, lambda: replications_report.text(document, _wall_s(runs))


_LAYOUTS = {REPLAY_FORMAT: replay_report.text, LOG_FORMAT: log_report.text}


def _wall_s(runs: list[Run]) -> float | None:
    """How long the simulations took in all [s], if that is known of each."""
    known = [seconds for run in runs if isinstance(seconds := run.manifest.get("wall_s"), int | float)]
    return sum(known) if len(known) == len(runs) else None

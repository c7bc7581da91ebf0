"""The workload that a config names: a recorded trace or a length law."""

from rollsim.simulator.law_store import list_laws, load_law
from rollsim.simulator.recorded_workload import RecordedWorkload
from rollsim.simulator.rng import Streams
from rollsim.simulator.workload import LawWorkload, Visits
from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.requests import read_requests


def open_workload(
    trace: str | None,
    law: str | None,
    streams: Streams,
    *,
    visits: Visits = "redraw",
    cap_tokens: int | None = None,
    file: str = "config",
) -> RecordedWorkload | LawWorkload:
    """Open one of both.

    Parameters
    ----------
    trace, law : str or None
        A file of requests or ``example:NAME``; name of a shipped law or a file.
    streams : Streams
    visits : str
        Whether a prompt that comes back meets its responses again (`reuse`) or new ones (`redraw`).
    cap_tokens : int, optional
        Another cap than the law's.
    file : str
        Named in faults.

    Raises
    ------
    BadInput
        If not exactly one is given, or it cannot be read.
    """
    if (trace is None) == (law is None):
        given = "neither" if trace is None else "both"
        laws = ", ".join(list_laws())
        message = f"one of workload.trace (a file, example:grpo) and workload.law ({laws}) is needed"
        raise BadInput(Fault(file, "workload", given, message=message))
    if law is not None:
        return LawWorkload(load_law(law), streams, visits=visits, cap_tokens=cap_tokens)
    if cap_tokens is not None:
        raise BadInput(Fault(file, "workload.cap_tokens", cap_tokens, "nothing with workload.trace"))
    return RecordedWorkload(read_requests(str(trace)), streams, visits=visits)

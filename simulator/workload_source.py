"""The workload that a config names: a recorded trace or a length law."""

import itertools
from collections.abc import Sequence

from rollsim.simulator.law_store import list_laws, load_law
from rollsim.simulator.length_law import Drift, LengthLaw
from rollsim.simulator.profile_parts import Claim
from rollsim.simulator.recorded_workload import Order, RecordedWorkload
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
    drift: Sequence[Drift] = (),
    order: Order | None = None,
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
    drift : sequence of Drift
        Another drift than the law's, unless empty.
    order : str, optional
        Whether prompts are groups of the trace drawn at random (`resampled`, the default) or in its order (`recorded`).
    file : str
        Named in faults.

    Raises
    ------
    BadInput
        If not exactly one is given, or it cannot be read, or it does not take the settings: with every fault.
    """
    faults = []
    if (trace is None) == (law is None):
        given = "neither" if trace is None else "both"
        laws = ", ".join(list_laws())
        message = f"one of workload.trace (a file, example:grpo) and workload.law ({laws}) is needed"
        faults.append(Fault(file, "workload", given, message=message))
    elif trace is not None:
        settings = {"cap_tokens": cap_tokens, "drift": [knot.version for knot in drift] or None}
        faults += [
            Fault(file, f"workload.{name}", given, "nothing with workload.trace")
            for name, given in settings.items()
            if given is not None
        ]
    elif order is not None:
        faults.append(Fault(file, "workload.order", order, "nothing with workload.law"))
    if any(later.version <= earlier.version for earlier, later in itertools.pairwise(drift)):
        versions = [knot.version for knot in drift]
        faults.append(Fault(file, "workload.drift", versions, "versions that increase strictly"))
    if faults:
        raise BadInput(faults)
    if law is not None:
        return LawWorkload(_drifting(load_law(law), drift), streams, visits=visits, cap_tokens=cap_tokens)
    return RecordedWorkload(read_requests(str(trace)), streams, visits=visits, order=order or "resampled")


def _drifting(law: LengthLaw, drift: Sequence[Drift]) -> LengthLaw:
    if not drift:
        return law
    changed = law.model_copy(update={"drift": tuple(drift)})
    if law.evidence is None:
        return changed
    claim = Claim(part="drift", grade="assumed", how="as the config says")
    return changed.model_copy(
        update={"evidence": law.evidence.model_copy(update={"claims": (*law.evidence.claims, claim)})}
    )

"""Policies from their settings: a name alone, ``{use: name, setting: value}``, or a list of those."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from rollsim.policies import registry
from rollsim.policies.admission_fixed_batch import FixedBatch
from rollsim.policies.admission_staleness_quota import StalenessQuota
from rollsim.policies.base import (
    Allocation,
    Bubble,
    Decoding,
    EarlyStop,
    Migration,
    Ordering,
    Policy,
    Prompts,
    Readiness,
    RoundEnd,
    ToolWait,
    WeightSync,
)
from rollsim.policies.compose import Chain, FirstAnswer, Minimum
from rollsim.policies.round_end_first_k import FirstK
from rollsim.policies.selection_drop_stale import DropStale
from rollsim.policies.selection_in_order import InOrder
from rollsim.policies.weight_sync_relay import Relay
from rollsim.traces.errors import BadInput, Fault, closest

DEFAULTS: dict[str, Any] = {
    "prompts": "in_order",
    "admission": "fixed_batch",
    "ordering": "fcfs",
    "routing": "even_split",
    "migration": "none",
    "early_stop": "never",
    "round_end": "barrier",
    "readiness": "batch",
    "selection": [],
    "weight_sync": "drain",
    "allocation": "colocate",
    "decoding": "plain",
    "bubble": "nobody",
    "tool_wait": "hold",
}


@dataclasses.dataclass(frozen=True)
class Policies:
    """One policy for each decision point."""

    prompts: Prompts
    admission: Minimum
    ordering: Ordering
    routing: FirstAnswer
    migration: Migration
    early_stop: EarlyStop
    round_end: RoundEnd
    readiness: Readiness
    selection: Chain
    weight_sync: WeightSync
    allocation: Allocation
    decoding: Decoding
    bubble: Bubble
    tool_wait: ToolWait

    def each(self) -> list[Policy]:
        """All of them."""
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    @property
    def synchronous(self) -> bool:
        """Whether a batch surely ends before its training begins, and nothing starts until it is over."""
        zero = any(
            (isinstance(policy, FixedBatch) and not policy.ahead)
            or (isinstance(policy, StalenessQuota) and not policy.eta)
            for policy in self.admission.policies
        )
        kept = isinstance(self.round_end, FirstK) and self.round_end.unfinished == "keep"
        return zero and not kept and not isinstance(self.weight_sync, Relay)

    @property
    def pulls(self) -> bool:
        """Whether replicas take new weights by themselves."""
        return isinstance(self.weight_sync, Relay)

    @property
    def hard_eta(self) -> int | None:
        """Staleness [versions] that no consumed trajectory may exceed; None if there is no such bound.

        A quota in order gives one if replicas work with the newest weights, which those that pull them may not.
        """
        bounds = [policy.eta for policy in self.selection.policies if isinstance(policy, DropStale)]
        if not self.pulls and any(isinstance(policy, InOrder) for policy in self.selection.policies):
            bounds += [policy.eta for policy in self.admission.policies if isinstance(policy, StalenessQuota)]
        return min(bounds, default=None)


def build_policies(written: Mapping[str, Any], file: str) -> tuple[Policies | None, list[Fault]]:
    """Build every policy; None if there are faults."""
    faults: list[Fault] = []
    known = registry.POINTS
    for point in written:
        if point not in known:
            names = ", ".join(known)
            faults.append(
                Fault(file, f"policies.{point}", None, names, closest(point, known), "no such decision point")
            )
    built: dict[str, list[Any]] = {}
    for point, default in DEFAULTS.items():
        given = written.get(point, default)
        entries = given if isinstance(given, list) else [given]
        place = f"policies.{point}"
        many = len(entries) != 1
        if (many and point not in registry.COMPOSED) or (not entries and point != "selection"):
            faults.append(Fault(file, place, f"{len(entries)} policies", "one", message="this point holds one policy"))
            continue
        built[point] = [
            policy
            for i, entry in enumerate(entries)
            if (policy := _build(point, entry, file, f"{place}[{i}]" if many else place, faults)) is not None
        ]
    if faults:
        return None, faults
    one = {point: policies[0] for point, policies in built.items() if point not in registry.COMPOSED}
    composed = {
        "admission": Minimum(built["admission"]),
        "routing": FirstAnswer(built["routing"]),
        "selection": Chain(built["selection"]),
    }
    return Policies(**one, **composed), []


def _build(point: str, entry: Any, file: str, place: str, faults: list[Fault]) -> Policy | None:
    settings = {"use": entry} if isinstance(entry, str) else entry
    if not isinstance(settings, dict) or not isinstance(settings.get("use"), str):
        names = ", ".join(registry.BUILT_IN[point])
        faults.append(Fault(file, place, entry, f"a name ({names}), or {{use: name, setting: value}}"))
        return None
    try:
        policy = registry.find(point, settings["use"], file, place)
    except BadInput as error:
        faults += error.faults
        return None
    hints = get_type_hints(policy)
    fields = {field.name: field for field in dataclasses.fields(policy) if field.name != "subscription"}
    before = len(faults)
    values = {key: value for key, value in settings.items() if key != "use"}
    for key, value in values.items():
        if key not in fields:
            names = ", ".join(fields) or "none"
            faults.append(Fault(file, f"{place}.{key}", None, names, closest(key, fields), "no such setting"))
        elif get_origin(hints[key]) is Literal and value not in get_args(hints[key]):
            names = get_args(hints[key])
            faults.append(Fault(file, f"{place}.{key}", value, ", ".join(names), closest(value, names)))
        elif hints[key] is bool and not isinstance(value, bool):
            faults.append(Fault(file, f"{place}.{key}", value, "true, false"))
        elif hints[key] is float and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf
        ):
            faults.append(Fault(file, f"{place}.{key}", value, "a number above 0"))
        elif hints[key] is int and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            faults.append(Fault(file, f"{place}.{key}", value, "a whole number, at least 0"))
    faults += [
        Fault(file, f"{place}.{name}", message="missing")
        for name, field in fields.items()
        if name not in values and field.default is dataclasses.MISSING
    ]
    if len(faults) > before:
        return None
    try:
        return policy(**values)
    except ValueError as error:
        faults.append(Fault(file, place, message=str(error)))
        return None


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf

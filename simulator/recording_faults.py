"""What can be wrong with a recording file. Every fault is found in one pass; faults of one kind are told together."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rollsim.simulator import recording_rules as rules
from rollsim.simulator.limits import most_seqs
from rollsim.traces.errors import Fault, closest

Json = dict[str, Any]

KEYS: dict[str, type] = {
    "config": dict,
    "requests": list,
    "columns": list,
    "rows": list,
    "prefill_chunks": list,
    "preempted": list,
    "result": dict,
}
OPTIONAL_KEYS = ("steps", "preemptions", "spec_steps", "output_ids")
OPTIONAL_CONFIG_KEYS = (*rules.OPTIONAL_CONFIG, *rules.NOT_MODELLED, "updates")
# Told by a recording of itself; nothing is done with it.
NOT_USED = ("case", "what", "runs", "deterministic", "wall_ms", "cpu_ms")
NOT_USED_CONFIG = ("vllm_version", "async_scheduling", "watermark", "sampling", "model")
PLACES_SHOWN = 4


class _Faults:
    """Collects faults of one file; equal ones at several places become one."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._places: dict[tuple[str, str, str], list[tuple[str, object, str | None]]] = {}

    def add(self, kind: str, place: str, given: object, allowed: str, message: str, near: str | None = None) -> None:
        """Note a fault; those of the same kind (what stands before the place), rule and message are told together."""
        self._places.setdefault((kind, allowed, message), []).append((place, given, near))

    def check(self, kind: str, place: str, given: object, rule: rules.Rule, message: str = "wrong value") -> bool:
        """Note a fault if a value breaks its rule; return whether it keeps it."""
        if rule.is_valid(given):
            return True
        near = closest(given, rules.POLICIES) if rule is rules.CONFIG["policy"] else None
        self.add(kind, place, given, rule.allowed, message, near)
        return False

    def told(self) -> list[Fault]:
        """All faults, in the order in which their kinds were first met."""
        faults = []
        for (kind, allowed, message), found in self._places.items():
            shown = ", ".join(place for place, _, _ in found[:PLACES_SHOWN])
            more = f" and {len(found) - PLACES_SHOWN} more" if len(found) > PLACES_SHOWN else ""
            _, given, near = found[0]
            place = f"{kind} {shown}{more}".strip()
            faults.append(Fault(self.file, place, _short(given), allowed, near, message))
        return faults


def _short(value: object) -> object:
    text = repr(value)
    return value if len(text) <= 60 else f"{text[:57]}..."


def find_faults(document: object, file: str, known_columns: Sequence[Sequence[str]]) -> list[Fault]:
    """Return everything that keeps a decoded file from being a recording with one of the known sets of columns."""
    faults = _Faults(file)
    if not isinstance(document, dict):
        faults.add("", "", type(document).__name__, "a JSON object", "not a recording")
        return faults.told()
    for key, kind in KEYS.items():
        if key not in document:
            strange = [name for name in document if name not in (*KEYS, *OPTIONAL_KEYS, *NOT_USED)]
            faults.add(key, "", closest(key, strange), "", "the key is missing")
        elif not isinstance(document[key], kind):
            allowed = "an object" if kind is dict else "a list"
            faults.add(key, "", document[key], allowed, "wrong type")
    _check_optional_keys("", document, OPTIONAL_KEYS, (*KEYS, *NOT_USED), faults)
    present = {key: document[key] for key, kind in KEYS.items() if isinstance(document.get(key), kind)}
    if "config" in present:
        _check_config(present["config"], faults)
    ids = _check_requests(present["requests"], faults) if "requests" in present else None
    if "columns" in present:
        _check_rows(present["columns"], present.get("rows", []), known_columns, faults)
    _check_totals(document, present, faults)
    _check_steps(document, present, ids, faults)
    if "result" in present:
        _check_result(present["result"], ids, faults)
    return faults.told()


def _check_optional_keys(
    place: str, given: Json, optional: Collection[str], others: Collection[str], faults: _Faults
) -> None:
    """Note keys that nobody knows and that look like an optional one which is not there; its value would be lost."""
    missing = [name for name in optional if name not in given]
    required_and_missing = [name for name in others if name not in given]
    for key in given:
        if key not in optional and key not in others:
            near = closest(key, missing + required_and_missing)
            if near in missing:
                faults.add(f"{place}{key}", "", None, "", "unknown key", near)


def _check_config(config: Json, faults: _Faults) -> None:
    for key, rule in rules.CONFIG.items():
        if key in config:
            faults.check(f"config: {key}", "", config[key], rule)
        else:
            known = (*rules.CONFIG, *OPTIONAL_CONFIG_KEYS, *NOT_USED_CONFIG)
            near = closest(key, [name for name in config if name not in known])
            faults.add(f"config: {key}", "", near, rule.allowed, "the key is missing")
    for key, rule in rules.OPTIONAL_CONFIG.items():
        if key in config:
            faults.check(f"config: {key}", "", config[key], rule)
    for key, modelled in rules.NOT_MODELLED.items():
        if config.get(key, modelled) != modelled:
            faults.add(f"config: {key}", "", config[key], repr(modelled), "not modelled")
    if all(key in config and rules.CONFIG[key].is_valid(config[key]) for key in rules.CONFIG):
        most = most_seqs(config["max_model_len"], config["block_size"])
        if config["prefix_caching"] and config["max_num_seqs"] > most:
            allowed = f"up to {most} with this max_model_len and block_size, or no prefix_caching"
            faults.add("config: max_num_seqs", "", config["max_num_seqs"], allowed, "more blocks than can be followed")
    _check_optional_keys("config: ", config, OPTIONAL_CONFIG_KEYS, (*rules.CONFIG, *NOT_USED_CONFIG), faults)
    updates = config.get("updates", [])
    for i, update in enumerate(updates if isinstance(updates, list) else [updates]):
        faults.check("config: updates", str(i), update, rules.UPDATE)


def _check_requests(requests: list[object], faults: _Faults) -> Collection[str] | None:
    """Check each request; return the ids of all, faulty ones too, or None if one's could not be read."""
    if not requests:
        faults.add("requests", "", None, "at least one", "no request")
    sound: dict[str, Json] = {}
    ids: dict[str, None] = {}
    unnamed = not requests
    for i, request in enumerate(requests):
        if not isinstance(request, dict):
            faults.add("requests", str(i), request, "an object", "wrong type")
            unnamed = True
            continue
        name = request.get("id")
        place = name if rules.is_name(name) else f"number {i}"
        unnamed |= not rules.is_name(name)
        is_sound = True
        for key, rule in rules.REQUEST.items():
            if key in request:
                is_sound &= faults.check(f"requests: {key} of", place, request[key], rule)
            else:
                near = closest(key, set(request) - set(rules.REQUEST))
                faults.add(f"requests: {key} of", place, near, "", "the key is missing")
                is_sound = False
        if rules.is_name(name):
            if name in ids:
                faults.add("requests", place, name, "ids that differ", "the id is given twice")
            ids[place] = None
        if is_sound:
            sound[place] = request
    known = None if unnamed else ids
    _check_relations(sound, known, faults)
    return known


def _check_relations(requests: Mapping[str, Json], known: Collection[str] | None, faults: _Faults) -> None:
    """Check what requests say of each other; an unknown id is told only if the ids of all could be read."""
    prompts: dict[str, int] = {}
    order = {id: i for i, id in enumerate(sorted(requests, key=lambda id: requests[id]["before_step"]))}
    for id, request in requests.items():
        earlier = request["resume_of"]
        resumed = requests.get(earlier)
        if earlier is not None:
            if resumed is None:
                if known is not None and earlier not in known:
                    near = closest(earlier, known)
                    faults.add("requests: resume_of of", id, earlier, "the id of a request", "unknown id", near)
            elif order[earlier] >= order[id]:
                faults.add("requests: resume_of of", id, earlier, "a request added earlier", "wrong order")
            elif request["prompt_tokens"] < resumed["prompt_tokens"]:
                allowed = f">= {resumed['prompt_tokens']}, the prompt of {earlier}"
                faults.add(
                    "requests: prompt_tokens of", id, request["prompt_tokens"], allowed, "shorter than what it resumes"
                )
        elif request["group"] is not None:
            first = prompts.setdefault(request["group"], request["prompt_tokens"])
            if request["prompt_tokens"] != first:
                allowed = f"{first}, the prompt of group {request['group']}"
                faults.add(
                    "requests: prompt_tokens of", id, request["prompt_tokens"], allowed, "a group has one prompt"
                )


def _check_rows(
    columns: list[object], rows: list[object], known_columns: Sequence[Sequence[str]], faults: _Faults
) -> None:
    widths = {len(columns)}
    if all(columns != list(names) for names in known_columns):
        likest = max(known_columns, key=lambda names: sum(column in names for column in columns))
        wrong = next((column for column in columns if column not in likest), None)
        near = closest(wrong, [name for name in likest if name not in columns]) if wrong is not None else None
        faults.add("columns", "", columns if wrong is None else wrong, ", ".join(likest), "wrong columns", near)
        widths.add(len(likest))
    allowed = f"a list of {max(widths)} whole numbers, one per column, each {rules.COUNT.allowed}"
    for i, row in enumerate(rows):
        if not (isinstance(row, list) and len(row) in widths and all(map(rules.COUNT.is_valid, row))):
            faults.add("rows", str(i), row, allowed, "wrong row")


def _check_totals(document: Json, present: Json, faults: _Faults) -> None:
    """Check the totals that a recording may state of itself against its rows."""
    rows, columns = present.get("rows"), present.get("columns", [])
    if rows is None:
        return
    totals = {"steps": len(rows)}
    last = rows[-1] if rows else None
    if isinstance(last, list) and len(last) == len(columns) and columns.count("preempted_total") == 1:
        totals["preemptions"] = last[columns.index("preempted_total")]
    for key, total in totals.items():
        if key in document and (not rules.COUNT.is_valid(document[key]) or document[key] != total):
            faults.add(key, "", document[key], f"{total!r}, as in the rows", "wrong total")


def _check_steps(document: Json, present: Json, ids: Collection[str] | None, faults: _Faults) -> None:
    """Check the lists that have one entry per row."""
    for key, rule in rules.STEPS.items():
        steps = document.get(key)
        if key == "spec_steps" and steps is not None and not isinstance(steps, list):
            faults.add(key, "", steps, "a list", "wrong type")
        if not isinstance(steps, list):
            continue
        if "rows" in present and len(steps) != len(present["rows"]):
            faults.add(key, "", len(steps), f"{len(present['rows'])} entries, one per row", "wrong length")
        for k, step in enumerate(steps):
            if faults.check(key, f"step {k}", step, rule, "wrong entry"):
                _check_known(key, f"step {k}", step, ids, faults)
    output_ids = document.get("output_ids", {})
    if faults.check("output_ids", "", output_ids, rules.OUTPUT_IDS):
        _check_known("output_ids", "", output_ids, ids, faults)


def _check_result(result: Json, ids: Collection[str] | None, faults: _Faults) -> None:
    _check_known("result", "", result, ids, faults)
    for id in ids or ():
        if id not in result:
            faults.add("result", id, None, "one entry per request", "the request is missing")
    for id, fields in result.items():
        if not isinstance(fields, dict):
            faults.add("result", id, fields, "an object", "wrong type")
            continue
        for name, value in fields.items():
            faults.check(f"result: {name} of", id, value, rules.RESULT_FIELD)


def _check_known(kind: str, place: str, given: Iterable[str], ids: Collection[str] | None, faults: _Faults) -> None:
    for id in given:
        if ids is not None and id not in ids:
            faults.add(kind, place or id, id, "the id of a request", "unknown id", closest(id, ids))

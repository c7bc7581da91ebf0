"""What can be wrong with a recording file. Every fault is found in one pass; faults of one kind are told together."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

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
OPTIONAL_KEYS = ("case", "what", "runs", "deterministic", "steps", "preemptions", "wall_ms", "cpu_ms")
REQUEST_KEYS = (
    "id", "prompt_tokens", "output_tokens", "group", "before_step", "priority", "abort_after_step", "resume_of",
)  # fmt: skip
NOT_MODELLED = {"num_lookahead_tokens": 0, "scheduler_reserve_full_isl": True, "use_v2_model_runner": False}
POLICIES = ("fcfs", "priority")
PLACES_SHOWN = 4


def is_count(value: object, least: int = 0) -> bool:
    """Whether a value is a whole number not below `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


CONFIG_VALUES: dict[str, tuple[Callable[[object], bool], str]] = {
    "max_num_seqs": (lambda value: is_count(value, 1), "a whole number >= 1"),
    "max_num_batched_tokens": (lambda value: is_count(value, 1), "a whole number >= 1"),
    "block_size": (lambda value: is_count(value, 1), "a whole number >= 1"),
    "num_gpu_blocks": (lambda value: is_count(value, 1), "a whole number >= 1"),
    "max_model_len": (lambda value: is_count(value, 2), "a whole number >= 2"),
    "long_prefill_token_threshold": (is_count, "a whole number >= 0"),
    "watermark_blocks": (is_count, "a whole number >= 0"),
    "prefix_caching": (lambda value: isinstance(value, bool), "true, false"),
    "chunked_prefill": (lambda value: isinstance(value, bool), "true, false"),
    "policy": (lambda value: value in POLICIES, ", ".join(POLICIES)),
}
OPTIONAL_CONFIG_VALUES: dict[str, tuple[Callable[[object], bool], str]] = {
    "max_num_scheduled_tokens": (lambda value: is_count(value, 1), "a whole number >= 1"),
    "max_num_active_seqs": (lambda value: is_count(value, 1), "a whole number >= 1"),
    "long_prefill_token_threshold_adaptive": (lambda value: isinstance(value, bool), "true, false"),
}


class _Faults:
    """Collects faults of one file; equal ones at several places become one."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._places: dict[tuple[str, str, str], list[tuple[str, object, str | None]]] = {}

    def add(self, kind: str, place: str, given: object, allowed: str, message: str, near: str | None = None) -> None:
        """Note a fault; those of the same kind (what stands before the place), rule and message are told together."""
        self._places.setdefault((kind, allowed, message), []).append((place, given, near))

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
            strange = [name for name in document if name not in KEYS and name not in OPTIONAL_KEYS]
            near = closest(key, strange)
            faults.add(key, "", near, "", "the key is missing")
        elif not isinstance(document[key], kind):
            allowed = "an object" if kind is dict else "a list"
            faults.add(key, "", document[key], allowed, "wrong type")
    present = {key: document[key] for key, kind in KEYS.items() if isinstance(document.get(key), kind)}
    if "config" in present:
        _check_config(present["config"], faults)
    ids = _check_requests(present.get("requests", []), faults)
    if "columns" in present:
        _check_rows(present["columns"], present.get("rows", []), known_columns, faults)
    _check_steps(document, present, ids, faults)
    if "result" in present:
        _check_result(present["result"], ids, faults)
    return faults.told()


def _check_config(config: Json, faults: _Faults) -> None:
    for key, (is_valid, allowed) in CONFIG_VALUES.items():
        if key not in config:
            known = (*CONFIG_VALUES, *OPTIONAL_CONFIG_VALUES, *NOT_MODELLED)
            near = closest(key, [name for name in config if name not in known])
            faults.add(f"config: {key}", "", near, allowed, "the key is missing")
        elif not is_valid(config[key]):
            near = closest(config[key], POLICIES) if key == "policy" else None
            faults.add(f"config: {key}", "", config[key], allowed, "wrong value", near)
    for key, (is_valid, allowed) in OPTIONAL_CONFIG_VALUES.items():
        if key in config and not is_valid(config[key]):
            faults.add(f"config: {key}", "", config[key], allowed, "wrong value")
    for key, modelled in NOT_MODELLED.items():
        if config.get(key, modelled) != modelled:
            faults.add(f"config: {key}", "", config[key], repr(modelled), "not modelled")
    spec = config.get("spec", {})
    if not isinstance(spec, dict) or not is_count(spec.get("num_speculative_tokens", 0)):
        faults.add("config: spec", "", spec, "an object with num_speculative_tokens >= 0", "wrong value")
    updates = config.get("updates", [])
    for i, update in enumerate(updates if isinstance(updates, list) else [updates]):
        if not (
            isinstance(update, dict)
            and is_count(update.get("after_step"))
            and update.get("mode", "keep") == "keep"
            and isinstance(update.get("clear_cache"), bool)
        ):
            faults.add("config: updates", str(i), update, "after_step >= 0, mode keep, clear_cache", "wrong value")


def _check_requests(requests: list[object], faults: _Faults) -> dict[str, Json]:
    """Check each request, and return the sound ones by id."""
    sound: dict[str, Json] = {}
    for i, request in enumerate(requests):
        if not isinstance(request, dict):
            faults.add("requests", str(i), request, "an object", "wrong type")
            continue
        missing = [key for key in REQUEST_KEYS if key not in request]
        for key in missing:
            faults.add(
                f"requests: {key} of",
                _name(request, i),
                closest(key, set(request) - {*REQUEST_KEYS}),
                "",
                "the key is missing",
            )
        rules: dict[str, tuple[bool, str]] = {
            "id": (_is_name(request.get("id")), "text"),
            "prompt_tokens": (is_count(request.get("prompt_tokens"), 1), "a whole number >= 1"),
            "output_tokens": (is_count(request.get("output_tokens"), 1), "a whole number >= 1"),
            "group": (request.get("group") is None or _is_name(request["group"]), "text or null"),
            "before_step": (is_count(request.get("before_step")), "a whole number >= 0"),
            "priority": (is_count(request.get("priority"), -(2**62)), "a whole number"),
            "abort_after_step": (
                request.get("abort_after_step") is None or is_count(request["abort_after_step"]),
                "a whole number >= 0 or null",
            ),
            "resume_of": (request.get("resume_of") is None or _is_name(request["resume_of"]), "an id or null"),
        }
        wrong = [key for key, (is_valid, _) in rules.items() if key in request and not is_valid]
        for key in wrong:
            faults.add(f"requests: {key} of", _name(request, i), request[key], rules[key][1], "wrong value")
        if not missing and not wrong:
            if request["id"] in sound:
                faults.add("requests", request["id"], request["id"], "ids that differ", "the id is given twice")
            sound[request["id"]] = request
    _check_relations(sound, len(sound) == len(requests), faults)
    return sound


def _name(request: Json, index: int) -> str:
    return request["id"] if _is_name(request.get("id")) else f"number {index}"


def _check_relations(requests: Mapping[str, Json], complete: bool, faults: _Faults) -> None:
    """Check what requests say of each other; an unknown id is told only if all requests could be read."""
    prompts: dict[str, int] = {}
    order = {id: i for i, id in enumerate(sorted(requests, key=lambda id: requests[id]["before_step"]))}
    for id, request in requests.items():
        resumed = requests.get(request["resume_of"])
        if request["resume_of"] is not None:
            if resumed is None:
                if complete:
                    near = closest(request["resume_of"], requests)
                    faults.add(
                        "requests: resume_of of", id, request["resume_of"], "the id of a request", "unknown id", near
                    )
            elif order[resumed["id"]] >= order[id]:
                faults.add("requests: resume_of of", id, resumed["id"], "a request added earlier", "wrong order")
            elif request["prompt_tokens"] < resumed["prompt_tokens"]:
                allowed = f">= {resumed['prompt_tokens']}, the prompt of {resumed['id']}"
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
    if all(columns != list(names) for names in known_columns):
        likest = max(known_columns, key=lambda names: sum(column in names for column in columns))
        wrong = next((column for column in columns if column not in likest), None)
        near = closest(wrong, [name for name in likest if name not in columns]) if wrong is not None else None
        faults.add("columns", "", columns if wrong is None else wrong, ", ".join(likest), "wrong columns", near)
    for i, row in enumerate(rows):
        if not (isinstance(row, list) and len(row) == len(columns) and all(map(is_count, row))):
            faults.add("rows", str(i), row, f"a list of {len(columns)} whole numbers >= 0, one per column", "wrong row")


def _check_steps(document: Json, present: Json, ids: Mapping[str, Json], faults: _Faults) -> None:
    """Check the lists that have one entry per row."""
    kinds: dict[str, tuple[Callable[[object], bool], str]] = {
        "prefill_chunks": (
            lambda step: isinstance(step, dict) and all(is_count(tokens, 1) for tokens in step.values()),
            "an object: id -> tokens >= 1",
        ),
        "preempted": (lambda step: isinstance(step, list) and all(map(_is_name, step)), "a list of ids"),
        "spec_steps": (
            lambda step: (
                isinstance(step, dict)
                and all(
                    isinstance(spec, list) and len(spec) == 4 and all(map(is_count, spec)) for spec in step.values()
                )
            ),
            "an object: id -> [proposed, scheduled, accepted, appended]",
        ),
    }
    for key, (is_valid, allowed) in kinds.items():
        steps = document.get(key)
        if key == "spec_steps" and steps is not None and not isinstance(steps, list):
            faults.add(key, "", steps, "a list", "wrong type")
        if not isinstance(steps, list):
            continue
        if "rows" in present and len(steps) != len(present["rows"]):
            faults.add(key, "", len(steps), f"{len(present['rows'])} entries, one per row", "wrong length")
        for k, step in enumerate(steps):
            if is_valid(step):
                _check_known(key, f"step {k}", step, ids, faults)
            else:
                faults.add(key, f"step {k}", step, allowed, "wrong entry")
    output_ids = document.get("output_ids", {})
    if not isinstance(output_ids, dict) or not all(
        isinstance(tokens, list) and all(map(is_count, tokens)) for tokens in output_ids.values()
    ):
        faults.add("output_ids", "", type(output_ids).__name__, "an object: id -> list of token ids", "wrong type")
    else:
        _check_known("output_ids", "", output_ids, ids, faults)


def _check_result(result: Json, ids: Mapping[str, Json], faults: _Faults) -> None:
    _check_known("result", "", result, ids, faults)
    for id in ids:
        if id not in result:
            faults.add("result", id, None, "one entry per request", "the request is missing")
    for id, fields in result.items():
        if not isinstance(fields, dict):
            faults.add("result", id, fields, "an object", "wrong type")


def _check_known(kind: str, place: str, given: Iterable[str], ids: Collection[str], faults: _Faults) -> None:
    for id in given:
        if ids and id not in ids:
            faults.add(kind, place or id, id, "the id of a request", "unknown id", closest(id, ids))

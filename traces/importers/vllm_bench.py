"""vLLM ``bench serve --save-result --save-detailed``: one JSON document with a list a measured quantity."""

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.fields import Fields
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish
from rollsim.traces.importers.lines import whole_json

RESULT = "benchmark result"
_LISTS = ("input_lens", "output_lens", "ttfts", "latencies", "start_times")


def _claims(file: LogFile) -> str | None:
    known = {"request_throughput", "total_output_tokens"} <= file.keys or {"input_lens", "output_lens"} <= file.keys
    return RESULT if file.suffix in (".json", ".jsonl") and known else None


def _read(files: Files, draft: Draft) -> None:
    for file in files.get(RESULT, ()):
        document = whole_json(file, draft.damage, draft.done)
        if isinstance(document, dict):
            _read_result(Fields(document, file.name, draft.damage), file, draft)
        elif document is not None:
            draft.damage.add("not a JSON object; the file is left out", file.name)
    draft.derived.append("submitted is when a request was sent: queue_times are waits of the client before it")
    draft.derived.append("times are a monotonic clock's: they order the requests of one file, and are no dates")


def _read_result(result: Fields, file: LogFile, draft: Draft) -> None:
    lists = {name: result.listed(name) for name in _LISTS}
    gaps, errors = result.listed("itls"), result.listed("errors")
    count = max(map(len, lists.values()))
    for name, values in lists.items():
        if values and len(values) != count:
            what = f"{name} has another length than the other lists; it is not used"
            draft.damage.add(what, file.name, len(values), str(count))
            lists[name] = []
    names = [name for name in _LISTS if lists[name]]
    for index in range(count):
        place = f"{file.name} request {index + 1}"
        row = Fields({name: lists[name][index] for name in names}, place, draft.damage)
        failed = len(errors) == count and bool(errors[index])
        begin, first, whole = row.seconds("start_times"), row.seconds("ttfts"), row.seconds("latencies")
        if whole is None and first is not None and len(gaps) == count:
            whole = _sum_of(gaps[index], first)
        timed = begin is not None and not failed
        draft.rollouts.add(
            {
                "framework": "vllm",
                "sample_id": f"{file.name}/{index}",
                "prompt_tokens": row.count("input_lens"),
                "output_tokens": row.count("output_lens"),
                "num_turns": 1,
                "status": "failed" if failed else "finished",
                "finish_reason": "error" if failed else None,
                "t_submit_s": begin,
                "t_first_token_s": begin + first if timed and begin is not None and first is not None else None,
                "t_end_s": begin + whole if timed and begin is not None and whole is not None else None,
                "gen_s": whole if timed else None,
            }
        )


def _sum_of(gaps: object, first_s: float) -> float | None:
    if not isinstance(gaps, list) or not all(isinstance(gap, int | float) and gap >= 0 for gap in gaps):
        return None
    return first_s + float(sum(gaps))


IMPORTER = Importer(
    "vllm-bench",
    ("a result of `vllm bench serve` (.json) with input_lens and output_lens",),
    _claims,
    _read,
    (
        Wish("rollouts", "lengths and times of single requests", "vllm bench serve --save-result --save-detailed"),
        Wish("rollouts.output_tokens", "lengths of single requests", "--save-detailed beside --save-result"),
        Wish("rollouts.t_submit_s", "when requests were sent", "--save-detailed beside --save-result"),
        Wish("rollouts.queue_s", "time in the engine's queue", "no setting: the client does not see it"),
        Wish("rollouts.group_id", "groups", "no setting: a benchmark's requests have none"),
    ),
)

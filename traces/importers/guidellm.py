"""guidellm's report: ``benchmarks[].requests.{successful, incomplete, errored}[]`` with the times of each request."""

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.fields import Fields
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.importer import Files, Importer, Wish
from rollsim.traces.importers.lines import whole_json
from rollsim.traces.importers.text import Groups

REPORT = "report"
_OUTCOMES = {"successful": ("finished", None), "incomplete": ("aborted", "abort"), "errored": ("failed", "error")}


def _claims(file: LogFile) -> str | None:
    return REPORT if file.suffix == ".json" and "benchmarks" in file.keys else None


def _read(files: Files, draft: Draft) -> None:
    groups = Groups()
    for file in files.get(REPORT, ()):
        document = whole_json(file, draft.damage, draft.done)
        if not isinstance(document, dict):
            continue
        for number, entry in enumerate(Fields(document, file.name, draft.damage).listed("benchmarks"), start=1):
            place = f"{file.name} benchmark {number}"
            benchmark = Fields(entry if isinstance(entry, dict) else {}, place, draft.damage)
            requests = benchmark.inner("requests")
            for outcome in _OUTCOMES:
                for index, request in enumerate(requests.listed(outcome), start=1):
                    at = f"{place}, {outcome} {index}"
                    fields = Fields(request if isinstance(request, dict) else {}, at, draft.damage)
                    _add(fields, outcome, groups, draft)
    draft.derived.append("groups: requests of one conversation")


def _add(fields: Fields, outcome: str, groups: Groups, draft: Draft) -> None:
    info = fields.inner("info")
    timings = info.inner("timings")
    status, reason = _OUTCOMES[outcome]
    conversation = info.text("conversation_id")
    submit = timings.seconds("targeted_start")
    begin = timings.seconds("request_start")
    end = timings.seconds("last_token_iteration")
    draft.rollouts.add(
        {
            "framework": "guidellm",
            "sample_id": fields.text("request_id") or fields.place,
            "group_id": None if conversation is None else groups.number(conversation),
            "prompt_tokens": fields.count("prompt_tokens"),
            "output_tokens": fields.count("output_tokens"),
            "cached_tokens": fields.count("cached_tokens"),
            "num_turns": 1,
            "status": status,
            "finish_reason": reason,
            "t_submit_s": begin if submit is None else submit,
            "t_start_s": begin,
            "t_first_token_s": timings.seconds("first_token_iteration"),
            "t_end_s": timings.seconds("request_end") if end is None else end,
            "t_final_s": timings.seconds("finalized"),
            "gen_s": fields.seconds("request_latency"),
        }
    )


IMPORTER = Importer(
    "guidellm",
    ("a report of guidellm (.json) with `benchmarks`",),
    _claims,
    _read,
    (
        Wish("rollouts", "lengths and times of single requests", "guidellm --output kind=json,path=FILE"),
        Wish("rollouts.cached_tokens", "prefix cache hits", "a server that reports cached tokens in its usage"),
        Wish("rollouts.reward", "rewards", "no setting: a benchmark has none"),
    ),
)

"""Recordings of a real engine's steps: read from JSON, and checked for every fault at once.

The format is that of `tests/data/vllm_golden.tar.xz` (its README): one workload, the limits of the engine that ran it,
one row of counters per step, and what became of every request.
"""

import json
import lzma
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.recording_faults import Json, find_faults
from rollsim.traces.errors import BadInput, Fault

SYNC_COLUMNS = (
    "n_ctx_requests", "prefill_tokens", "n_gen_requests", "gen_tokens", "kv_tokens", "kv_batch", "kv_held",
    "blocks_peak", "blocks_used", "running", "waiting", "preempted_total", "draft_tokens", "accepted_tokens",
)  # fmt: skip
ASYNC_COLUMNS = (
    "n_requests", "tokens", "blocks_after_schedule", "running_after_schedule", "waiting_after_schedule",
    "preempted_total", "blocks_after_update", "running_after_update", "waiting_after_update",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request of a recording, in the order of addition.

    Attributes
    ----------
    place
        Its place in the file: aborts due at the same time are made in this order.
    before_step
        Step before which it was added, from 0.
    abort_after_step
        Step after which it was aborted, if it was still unfinished.
    parent, shared_tokens
        The earlier request whose first tokens it shares, and how many: group siblings share the prompt, a resumed
        request shares the prompt and partial output of the one it resumes. Where output ids were recorded, siblings
        also share the tokens they generated alike.
    """

    id: str
    place: int
    prompt_tokens: int
    output_tokens: int
    priority: int
    before_step: int
    abort_after_step: int | None
    parent: str | None
    shared_tokens: int


@dataclass(frozen=True, slots=True)
class Speculation:
    """Drafts a request proposed in a step, and how many were accepted."""

    drafts: int
    accepted: int


@dataclass(frozen=True)
class Recording:
    """One recorded workload.

    Attributes
    ----------
    is_async
        Recorded under asynchronous scheduling (then with columns of its own).
    weight_updates
        (step after which it happened, whether the cache was cleared) of each pause.
    rows
        One row per step, in the order of `columns`.
    chunks
        Scheduled tokens by request, per step, where they were not 1.
    preempted
        Requests preempted, per step.
    speculation
        Drafts and acceptances by request, per step; None if the engine did not speculate.
    results
        What was recorded of each request, in the recording's own fields.
    """

    name: str
    is_async: bool
    limits: EngineLimits
    requests: tuple[RecordedRequest, ...]
    weight_updates: tuple[tuple[int, bool], ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    chunks: tuple[Mapping[str, int], ...]
    preempted: tuple[frozenset[str], ...]
    speculation: tuple[Mapping[str, Speculation], ...] | None
    results: Mapping[str, Mapping[str, Any]]

    @property
    def preemptions(self) -> int:
        """Preemptions in all."""
        return self.rows[-1][self.columns.index("preempted_total")] if self.rows else 0


def read_recordings(path: str | Path) -> list[Recording]:
    """Read a recording, or all recordings of a tar archive in the order of their names.

    Parameters
    ----------
    path
        A ``.json`` file, or a ``.tar``, ``.tar.gz`` or ``.tar.xz`` archive of such files.

    Raises
    ------
    BadInput
        The file is missing, or is not such a recording; carries the faults of all files.
    """
    path = Path(path)
    try:
        documents = list(_archive_members(path)) if ".tar" in path.suffixes else [(path.name, path.read_bytes())]
    except (OSError, tarfile.TarError, lzma.LZMAError, zlib.error, EOFError) as error:
        if reason := getattr(error, "strerror", None):
            raise BadInput(Fault(str(path), message=f"cannot be read: {reason}")) from error
        raise BadInput(Fault(str(path), message="damaged, cut off or not a tar archive")) from error
    recordings: list[Recording] = []
    faults: list[Fault] = []
    for name, content in documents:
        try:
            recordings.append(parse_recording(content, name))
        except BadInput as error:
            faults += error.faults
    if not documents:
        faults.append(Fault(str(path), message="the archive holds no recording", allowed="files named *.json"))
    if faults:
        raise BadInput(faults)
    return recordings


def _archive_members(path: Path) -> Iterable[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        members = [member for member in archive.getmembers() if member.isfile() and member.name.endswith(".json")]
        for member in sorted(members, key=lambda member: member.name):
            file = archive.extractfile(member)
            if file is not None:
                yield member.name, file.read()


def parse_recording(content: bytes, name: str) -> Recording:
    """Build a recording from the bytes of its JSON file; `name` is how faults call the file.

    Raises
    ------
    BadInput
        Carries every fault found.
    """
    try:
        document = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadInput(Fault(name, f"byte {error.start}", message="not UTF-8 text")) from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadInput(Fault(name, place, message=f"not JSON: {error.msg}")) from error
    except RecursionError as error:
        raise BadInput(Fault(name, message="not a recording: nested too deeply")) from error
    except ValueError as error:
        raise BadInput(Fault(name, message="not a recording: a number of thousands of digits")) from error
    faults = find_faults(document, name, (SYNC_COLUMNS, ASYNC_COLUMNS))
    if faults:
        raise BadInput(faults)
    return _build(document, name)


def _build(document: Json, name: str) -> Recording:
    config = document["config"]
    columns = tuple(document["columns"])
    is_async = columns == ASYNC_COLUMNS
    spec_steps = document.get("spec_steps")
    return Recording(
        name=name,
        is_async=is_async,
        limits=EngineLimits(
            max_num_seqs=min(config["max_num_seqs"], config.get("max_num_active_seqs", config["max_num_seqs"])),
            max_num_batched_tokens=config.get("max_num_scheduled_tokens", config["max_num_batched_tokens"]),
            block_size=config["block_size"],
            num_blocks=config["num_gpu_blocks"],
            max_model_len=config["max_model_len"],
            long_prefill_token_threshold=config["long_prefill_token_threshold"],
            long_prefill_adaptive=config.get("long_prefill_token_threshold_adaptive", False),
            watermark_blocks=config["watermark_blocks"],
            prefix_caching=config["prefix_caching"],
            chunked_prefill=config["chunked_prefill"],
            policy=config["policy"],
            async_scheduling=is_async,
            num_speculative_tokens=config.get("spec", {}).get("num_speculative_tokens", 0),
        ),
        requests=tuple(_requests(document["requests"], document.get("output_ids", {}))),
        weight_updates=tuple((update["after_step"], update["clear_cache"]) for update in config.get("updates", ())),
        columns=columns,
        rows=tuple(map(tuple, document["rows"])),
        chunks=tuple(document["prefill_chunks"]),
        preempted=tuple(map(frozenset, document["preempted"])),
        speculation=None
        if spec_steps is None
        else tuple(
            {id: Speculation(drafts, accepted) for id, (drafts, _, accepted, _) in step.items()} for step in spec_steps
        ),
        results=document["result"],
    )


def _requests(entries: list[Json], output_ids: Mapping[str, list[int]]) -> Iterable[RecordedRequest]:
    """Yield the requests in the order of addition, each with the earlier request it shares most tokens with."""
    groups: dict[str, list[Json]] = {}
    for place, entry in sorted(enumerate(entries), key=lambda item: item[1]["before_step"]):
        parent, shared_tokens = entry["resume_of"], entry["prompt_tokens"] if entry["resume_of"] else 0
        if entry["group"] is not None and parent is None:
            siblings = groups.setdefault(entry["group"], [])
            own_ids = output_ids.get(entry["id"], [])
            for sibling in siblings:
                alike = entry["prompt_tokens"] + _common_prefix(own_ids, output_ids.get(sibling["id"], []))
                if alike > shared_tokens:
                    parent, shared_tokens = sibling["id"], alike
            siblings.append(entry)
        yield RecordedRequest(
            id=entry["id"],
            place=place,
            prompt_tokens=entry["prompt_tokens"],
            output_tokens=entry["output_tokens"],
            priority=entry["priority"],
            before_step=entry["before_step"],
            abort_after_step=entry["abort_after_step"],
            parent=parent,
            shared_tokens=shared_tokens,
        )


def _common_prefix(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))

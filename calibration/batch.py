"""A designed batch: what is asked of a real engine, and when, in steps. Plain data."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Role = Literal["fit", "held_out", "reference"]


@dataclass(frozen=True)
class Request:
    """One request of a batch, in the words of a recording.

    Attributes
    ----------
    prompt_tokens, output_tokens
        Lengths [tokens]. A resumed request gets those of the one it resumes; what that had generated when it was
        aborted moves from the second to the first.
    group
        Requests of one group share their prompt.
    before_step
        Step before which it is added, from 0.
    priority
        Smaller goes first under the priority policy.
    abort_after_step
        Step after which it is aborted.
    resume_of
        The aborted request that it goes on with.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    group: str | None = None
    before_step: int = 0
    priority: int = 0
    abort_after_step: int | None = None
    resume_of: str | None = None


@dataclass(frozen=True)
class Batch:
    """Requests that are run together on an engine that holds nothing else.

    Attributes
    ----------
    purpose
        What it is for, in a few words.
    role
        ``fit``; ``held_out`` is never fitted to; ``reference`` is run again and again to see the machine's noise.
    options
        Engine options that differ from those of the measurement; batches that agree in them share an engine.
    """

    name: str
    purpose: str
    role: Role
    requests: tuple[Request, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens in all, shared ones counted for every request."""
        return sum(request.prompt_tokens for request in self.requests)

    @property
    def output_tokens(self) -> int:
        """Output tokens in all, if nothing is aborted."""
        return sum(request.output_tokens for request in self.requests)

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def from_document(document: dict[str, Any]) -> Batch:
    """Make a batch of what `Batch.document` returned."""
    requests = tuple(Request(**request) for request in document["requests"])
    return Batch(**{**document, "requests": requests})

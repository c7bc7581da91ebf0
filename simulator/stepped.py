"""An engine that is driven step by step without a clock: the form in which engines are compared with recordings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One request's part of a step.

    Attributes
    ----------
    id
        The request.
    tokens
        Tokens scheduled, drafts and placeholder drafts included.
    drafts
        Drafts among them; 0 in a prefill.
    computed
        Tokens with KV before this step, prefix-cache hits included.
    had_output
        Whether it had at least one delivered output token before this step.
    """

    id: str
    tokens: int
    drafts: int
    computed: int
    had_output: bool


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of an engine did.

    Attributes
    ----------
    scheduled
        Requests scheduled, in any order.
    preempted
        Requests preempted in this step, and by touches since the step before.
    outputs
        Output tokens so far of each request to which this step delivered some. Under asynchronous scheduling these are
        the tokens of the batch before.
    finished
        Requests that this step's update ended by length.
    blocks_peak, running_peak, waiting_peak
        Blocks in use and lengths of both queues after scheduling.
    blocks_used, running, waiting
        The same after the update.
    kv_held
        Tokens with KV, summed over the running requests after the step; rejected drafts are taken back.
    """

    scheduled: Sequence[Scheduled]
    preempted: Sequence[str]
    outputs: Mapping[str, int]
    finished: Sequence[str]
    blocks_peak: int
    running_peak: int
    waiting_peak: int
    blocks_used: int
    running: int
    waiting: int
    kv_held: int


class SteppedEngine(Protocol):
    """An engine instance that makes one step per call; all other calls act between two steps.

    Under asynchronous scheduling a step is one call of vLLM's ``step_with_batch_queue``: it schedules a batch and
    processes the output of the one before.
    """

    def add(
        self,
        id: str,
        prompt_tokens: int,
        output_tokens: int,
        *,
        priority: int = 0,
        parent: str | None = None,
        shared_tokens: int = 0,
    ) -> None:
        """Queue a request. Its first `shared_tokens` tokens equal those of the earlier request `parent`.

        Raises
        ------
        BadInput
            The request can never fit.
        """
        ...

    def abort(self, id: str) -> None:
        """Let an unfinished request leave."""
        ...

    def update_weights(self, clear_cache: bool) -> None:
        """Pause with mode "keep" and resume; `clear_cache` preempts all and empties the prefix cache."""
        ...

    def set_speculation(self, id: str, drafts: int, accepted: int) -> None:
        """Set how many drafts a request proposes in the next step, and how many of them will be accepted.

        It holds if the next step schedules the request as decode. Placeholder drafts are the engine's own business.
        """
        ...

    def step(self) -> Step | None:
        """Make a step, or return None if no request is unfinished."""
        ...

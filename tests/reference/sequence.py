"""One request inside the reference engine."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum

from tests.reference.blocks import Block

FP = 1024  # progress of a request is counted in 1/1024 token


class Where(Enum):
    """Queue a request stands in."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(eq=False)
class Sequence:
    """State of a request.

    Attributes
    ----------
    target_tokens
        Output tokens after which it ends by length.
    parent, shared_tokens
        The first `shared_tokens` tokens equal the parent's content (prompt and generated); all others are its own.
    progress
        Tokens with KV in units of 1/FP, up to and including the batches scheduled so far.
    output_tokens
        Generated tokens that were delivered.
    in_flight_tokens
        Generated tokens of scheduled batches that are not delivered yet (vLLM's output placeholders).
    decoding
        Its last prefill chunk since the last admission was scheduled.
    keyed_blocks
        Leading blocks it hit or registered.
    carried_tokens
        Leading tokens whose valid KV is copied in at the first admission.
    """

    id: Hashable
    prompt_tokens: int
    target_tokens: int
    arrival: int
    rank: int = 0
    priority: int = 0
    parent: "Sequence | None" = None
    shared_tokens: int = 0
    rate: int = FP
    drafts: int = 0
    carried_tokens: int = 0

    where: Where = Where.WAITING
    progress: int = 0
    output_tokens: int = 0
    in_flight_tokens: int = 0
    decoding: bool = False
    blocks: list[Block] = field(default_factory=list)
    keyed_blocks: int = 0

    first_token_s: float | None = None
    finish_s: float | None = None
    reason: str | None = None
    preemptions: int = 0
    admitted: bool = False
    cached_tokens: int = 0
    recomputed_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Known tokens: prompt and delivered output."""
        return self.prompt_tokens + self.output_tokens

    @property
    def computed_tokens(self) -> int:
        """Whole tokens with KV."""
        return self.progress // FP

    @property
    def needed_tokens(self) -> int:
        """Tokens without KV, those in flight included; 1 while decoding."""
        return self.total_tokens + self.in_flight_tokens - self.computed_tokens

    @property
    def end_tokens(self) -> int:
        """Tokens with KV at its end: the last sampled token is never fed back."""
        return self.prompt_tokens + self.target_tokens - 1

    @property
    def last_is_in_flight(self) -> bool:
        """Whether its last token is scheduled and not yet delivered."""
        return self.output_tokens + self.in_flight_tokens >= self.target_tokens

    @property
    def order(self) -> tuple[int, int]:
        """Rank under the priority policy; the smallest is served first, the largest is preempted."""
        return self.priority, self.arrival

    def key(self, block: int, block_size: int) -> Hashable:
        """Name of the content of its first `block + 1` blocks: the earliest request in the trie that has it."""
        owner = self
        while owner.parent is not None and (block + 1) * block_size <= owner.shared_tokens:
            owner = owner.parent
        return owner.arrival, block

    def advance(self, tokens: int) -> int:
        """Move its progress by one scheduled step of `tokens` (drafts excluded) and return the tokens it generates."""
        before = self.computed_tokens
        if self.decoding:
            self.progress = min(self.progress + self.rate, self.end_tokens * FP)
            generated = self.computed_tokens - before
        else:
            self.progress += tokens * FP
            generated = 1 if self.needed_tokens == 0 else 0
            self.decoding = generated == 1
        self.in_flight_tokens += generated
        return generated

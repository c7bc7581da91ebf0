"""One scheduler rank: serving `running`, preempting, admitting; rule by rule, one step at a time."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from rollsim.simulator.limits import EngineLimits
from tests.reference.blocks import BlockPool
from tests.reference.sequence import FP, Sequence, Where


@dataclass(frozen=True)
class Grant:
    """What one request was given in a step; `needed` and `progress` (1/FP token) as they were before it."""

    sequence: Sequence
    tokens: int
    drafts: int
    needed: int
    progress: int
    had_output: bool

    @property
    def is_decode(self) -> bool:
        """Whether the step's cost counts it as decode."""
        return self.needed == 1

    @property
    def computed(self) -> int:
        """Tokens with KV before the step."""
        return self.progress // FP


@dataclass
class Batch:
    """What a rank scheduled in one step, and the tokens each request will get of it.

    `preempted_before` are the requests that touches preempted since the step before, `preempted` those of the step.
    """

    preempted_before: list[Hashable] = field(default_factory=list)
    preempted: list[Hashable] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    generated: list[tuple[Sequence, int]] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Scheduled tokens, drafts included."""
        return sum(grant.tokens for grant in self.grants)


def blocks_for(tokens: int, block_size: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // block_size)


class Scheduler:
    """Queues and blocks of one rank. `preempted` collects ids until the next batch takes them."""

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self.pool = BlockPool(limits.num_blocks, caching=limits.prefix_caching)
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.preempted: list[Hashable] = []

    @property
    def num_unfinished(self) -> int:
        """Requests in either queue."""
        return len(self.running) + len(self.waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a request at the back."""
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Let a request leave at once, wherever it stands, and free its blocks."""
        (self.running if sequence.where is Where.RUNNING else self.waiting).remove(sequence)
        sequence.where = Where.ENDED
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.in_flight_tokens = 0

    def preempt_all(self) -> None:
        """Preempt every running request, last first, and empty the prefix cache (rule 8.1)."""
        while self.running:
            self._preempt(self.running[-1])
        self.pool.reset()

    def schedule(self) -> Batch:
        """Choose what the next step computes, and count it as computed."""
        batch = Batch(preempted_before=self.preempted)
        self.preempted = batch.preempted
        self.budget = self.limits.max_num_batched_tokens
        self.grants: dict[Sequence, Grant] = {}
        may_admit = self._serve_running()
        self.served_any = bool(self.grants)
        if may_admit:
            self._admit()
        self.preempted = []
        batch.grants += self.grants.values()
        for grant in batch.grants:
            sequence = grant.sequence
            if sequence.preemptions and not sequence.decoding:
                sequence.recomputed_tokens += grant.tokens - grant.drafts
            batch.generated.append((sequence, sequence.advance(grant.tokens - grant.drafts)))
        return batch

    def update(self, batch: Batch, now_s: float) -> tuple[dict[Hashable, int], list[Hashable]]:
        """Deliver the tokens of a batch; return output tokens of those that got some, and the ids that ended."""
        delivered: dict[Hashable, int] = {}
        finished = []
        for sequence, generated in batch.generated:
            if sequence.where is Where.ENDED or generated == 0:
                continue
            sequence.output_tokens += generated
            sequence.in_flight_tokens -= generated
            delivered[sequence.id] = sequence.output_tokens
            if sequence.first_token_s is None:
                sequence.first_token_s = now_s
            if self.limits.async_scheduling and sequence.where is Where.RUNNING:
                self._register(sequence, sequence.computed_tokens - sequence.in_flight_tokens)
            if sequence.output_tokens >= sequence.target_tokens:
                self.remove(sequence)
                sequence.finish_s = now_s
                sequence.reason = "length"
                finished.append(sequence.id)
        return delivered, finished

    # --- serving the running requests (section 2) ---

    def _serve_running(self) -> bool:
        """Walk `running` from the front. Return whether admission may follow: nothing was preempted."""
        preempted_any = False
        index = 0
        while index < len(self.running) and self.budget > 0:
            sequence = self.running[index]
            tokens = self._ask(sequence)
            if tokens == 0:
                index += 1
                continue
            while self._missing_blocks(sequence, tokens) > len(self.pool.free):
                preempted_any = True
                victim = self._victim()
                if victim in self.grants:
                    self.budget += self.grants.pop(victim).tokens
                    index -= 1
                self._preempt(victim)
                if victim is sequence:
                    return False
            self._grant(sequence, tokens, drafts=tokens - 1 if sequence.decoding else 0)
            index += 1
        return not preempted_any

    def _ask(self, sequence: Sequence) -> int:
        """Tokens a running request gets if blocks allow, drafts included."""
        if sequence.last_is_in_flight:
            return 0
        tokens = sequence.needed_tokens + (sequence.drafts if sequence.decoding else 0)
        tokens = min(self._capped(tokens), self.budget)
        return min(tokens, self.limits.max_model_len - sequence.computed_tokens - 1)

    def _capped(self, tokens: int) -> int:
        """Apply the long-prefill threshold (rule 2.2)."""
        if self.num_unfinished == 1:
            return tokens
        cap = self.limits.long_prefill_token_threshold
        if self.limits.long_prefill_adaptive:
            cap = max(cap, self.limits.max_num_batched_tokens // self.num_unfinished)
        return min(tokens, cap) if cap > 0 else tokens

    def _victim(self) -> Sequence:
        if self.limits.policy == "priority":
            return max(self.running, key=lambda sequence: sequence.order)
        return self.running[-1]

    def _preempt(self, sequence: Sequence) -> None:
        """Release everything a request holds and queue it in front (rule 4)."""
        self.running.remove(sequence)
        self.waiting.insert(0, sequence)
        sequence.where = Where.WAITING
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.keyed_blocks = 0
        sequence.progress = 0
        sequence.decoding = False
        sequence.preemptions += 1
        self.preempted.append(sequence.id)

    # --- admission (section 3) ---

    def _admit(self) -> None:
        if self.limits.policy == "priority":
            self.waiting.sort(key=lambda sequence: sequence.order)
        for sequence in list(self.waiting):
            if self.budget == 0 or len(self.running) >= self.limits.max_num_seqs:
                return
            if sequence.in_flight_tokens > 0:
                continue
            if not self._try_admit(sequence):
                return

    def _try_admit(self, sequence: Sequence) -> bool:
        size = self.limits.block_size
        most = (sequence.total_tokens - 1) // size
        hits = self.pool.lookup([sequence.key(i, size) for i in range(most)])
        carried = 0 if sequence.admitted else min(sequence.carried_tokens, sequence.total_tokens - 1)
        computed = max(len(hits) * size, carried)
        needed = sequence.total_tokens - computed
        tokens = self._capped(needed)
        if tokens > self.budget and not self.limits.chunked_prefill:
            return False
        tokens = min(tokens, self.budget)
        drafts = self._placeholders(needed, computed)
        if tokens + drafts > self.budget:
            return False

        whole = min(sequence.total_tokens, self.limits.max_model_len)
        wanted = max(blocks_for(whole, size), blocks_for(computed + tokens + drafts, size))
        wanted += sum(block.references == 0 for block in hits) - len(hits)
        if wanted > len(self.pool.free) - (self.limits.watermark_blocks if self.running else 0):
            return False

        self.waiting.remove(sequence)
        self.running.append(sequence)
        sequence.where = Where.RUNNING
        if not sequence.admitted:
            sequence.admitted = True
            sequence.cached_tokens = len(hits) * size
        self.pool.touch(hits)
        sequence.blocks = list(hits)
        sequence.keyed_blocks = len(hits)
        sequence.progress = computed * FP
        self._grant(sequence, tokens + drafts, drafts)
        return True

    def _placeholders(self, needed: int, computed: int) -> int:
        """Placeholder drafts of a request admitted with one token to compute (rule 10.3)."""
        mid_prefill = any(not grant.is_decode for grant in self.grants.values())
        if needed != 1 or mid_prefill or not (self.served_any or computed > 0):
            return 0
        return self.limits.num_speculative_tokens

    # --- blocks ---

    def _grant(self, sequence: Sequence, tokens: int, drafts: int) -> None:
        sequence.blocks += self.pool.allocate(max(0, self._missing_blocks(sequence, tokens)))
        self.budget -= tokens
        self.grants[sequence] = Grant(
            sequence, tokens, drafts, sequence.needed_tokens, sequence.progress, sequence.output_tokens > 0
        )
        self._register(sequence, min(sequence.computed_tokens + tokens, sequence.total_tokens))

    def _missing_blocks(self, sequence: Sequence, tokens: int) -> int:
        return blocks_for(sequence.computed_tokens + tokens, self.limits.block_size) - len(sequence.blocks)

    def _register(self, sequence: Sequence, tokens: int) -> None:
        """Key the full blocks among its first `tokens` tokens that have no key of its own yet.

        A rate may carry a request beyond its blocks, where drafts were cut: those it takes at the next step.
        """
        size = self.limits.block_size
        for block in range(sequence.keyed_blocks, min(tokens // size, len(sequence.blocks))):
            self.pool.register(sequence.blocks[block], sequence.key(block, size))
            sequence.keyed_blocks = block + 1

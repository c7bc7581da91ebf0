"""The reference engine on its clock: lockstep ranks, touches, and what became of every request."""

from collections.abc import Hashable
from dataclasses import dataclass

from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits
from rollsim.traces.errors import BadInput, Fault
from tests.reference.scheduler import Batch, Scheduler, blocks_for
from tests.reference.sequence import FP, Sequence, Where


@dataclass(frozen=True)
class RankStep:
    """What one rank did in a step: its batch, its load on the GPU, and its queues and blocks around the update."""

    batch: Batch
    decodes: int
    kv_tokens: float
    token_pairs: float
    blocks_peak: int
    running_peak: int
    waiting_peak: int
    blocks_used: int
    running: int
    waiting: int


@dataclass(frozen=True)
class StepLog:
    """One step of the lockstep domain."""

    start_s: float
    end_s: float
    tokens: int
    decode_only: bool
    ranks: list[RankStep]
    delivered: dict[Hashable, int]
    finished: list[Hashable]


@dataclass(frozen=True)
class Result:
    """What became of a request; None where it did not get that far."""

    first_token_s: float | None
    finish_s: float | None
    reason: str | None
    output_tokens: int
    preemptions: int
    cached_tokens: int
    recomputed_tokens: int


class Engine:
    """A step-by-step engine with the timed touches of a replica.

    A touch at time t first runs the engine to t, then acts at the step boundary reached. A touch on a request that has
    ended by then does nothing more.
    """

    def __init__(self, limits: EngineLimits, cost: StepCost) -> None:
        self.limits = limits
        self.cost = cost
        self.now = 0.0
        self.paused = False
        self.ranks = [Scheduler(limits) for _ in range(limits.lockstep_ranks)]
        self.sequences: dict[Hashable, Sequence] = {}
        self.in_flight = [Batch() for _ in self.ranks]
        self.log: list[StepLog] = []

    # --- time ---

    @property
    def has_work(self) -> bool:
        """Whether any rank holds an unfinished request."""
        return any(rank.num_unfinished for rank in self.ranks)

    def run(self) -> None:
        """Step until no work is left, or not at all while paused."""
        while self.has_work and not self.paused:
            self.step()

    def advance(self, t: float) -> None:
        """Step while there is work and the next step would start before t."""
        while self.has_work and not self.paused and self.now < t:
            self.step()

    def step(self) -> None:
        """Make one iteration on every rank."""
        batches = [rank.schedule() for rank in self.ranks]
        peaks = [(rank.pool.num_used, len(rank.running), len(rank.waiting)) for rank in self.ranks]
        tokens = sum(batch.tokens for batch in batches)
        decode_only = all(grant.is_decode for batch in batches for grant in batch.grants)
        loads = [self._load(batch) for batch in batches]
        start_s = self.now
        end_s = start_s + self.cost.step_s(tokens, decode_only, loads)
        if self.limits.async_scheduling:
            delivered, finished = self._update(self.in_flight, start_s)
            self.in_flight = batches
            flush = tokens == 0 and not self.has_work
            end_s = start_s if flush else end_s
        else:
            delivered, finished = self._update(batches, end_s)
        self.now = end_s
        steps = [
            RankStep(batch, *load, *peak, rank.pool.num_used, len(rank.running), len(rank.waiting))
            for rank, batch, load, peak in zip(self.ranks, batches, loads, peaks, strict=True)
        ]
        self.log.append(StepLog(start_s, end_s, tokens, decode_only, steps, delivered, finished))

    def _update(self, batches: list[Batch], now_s: float) -> tuple[dict[Hashable, int], list[Hashable]]:
        delivered: dict[Hashable, int] = {}
        finished: list[Hashable] = []
        for rank, batch in zip(self.ranks, batches, strict=True):
            some_delivered, some_finished = rank.update(batch, now_s)
            delivered |= some_delivered
            finished += some_finished
        return delivered, finished

    def _load(self, batch: Batch) -> tuple[int, float, float]:
        """B, U and A of one rank's batch."""
        decodes = [grant for grant in batch.grants if grant.is_decode]
        kv_tokens = sum(self.cost.kv_tokens_read(grant.progress / FP + 1) for grant in decodes)
        pairs = sum(grant.tokens * (grant.computed + grant.tokens / 2) for grant in batch.grants if not grant.is_decode)
        return len(decodes), float(kv_tokens), float(pairs)

    # --- touches ---

    def dispatch(
        self,
        t: float,
        id: Hashable,
        prompt_tokens: int,
        output_tokens: int,
        *,
        parent: Hashable | None = None,
        shared_tokens: int = 0,
        priority: int = 0,
        rate: float = 1.0,
        drafts: int = 0,
        rank: int | None = None,
        kv_tokens: int = 0,
    ) -> None:
        """Queue a request on a rank: the given one, else the one with fewest unfinished requests."""
        self._reach(t)
        target = min(output_tokens, self.limits.max_model_len - prompt_tokens)
        self._check_fits(id, prompt_tokens, output_tokens, target, drafts)
        if rank is None:
            rank = min(range(len(self.ranks)), key=lambda r: (self.ranks[r].num_unfinished, r))
        sequence = Sequence(
            id=id,
            prompt_tokens=prompt_tokens,
            target_tokens=target,
            arrival=len(self.sequences),
            rank=rank,
            priority=priority,
            parent=None if parent is None else self.sequences[parent],
            shared_tokens=shared_tokens,
            rate=round(rate * FP),
            drafts=drafts,
            carried_tokens=kv_tokens,
        )
        self.sequences[id] = sequence
        self.ranks[rank].add(sequence)

    def abort(self, t: float, id: Hashable) -> int | None:
        """Let a request leave. Return its output tokens, or None if it had ended before."""
        left = self.take_out(t, id, keep_kv=False)
        return None if left is None else left[0]

    def take_out(self, t: float, id: Hashable, keep_kv: bool) -> tuple[int, int] | None:
        """Let a request leave. Return output tokens and tokens with KV to carry, or None if it had ended before."""
        self._reach(t)
        sequence = self.sequences[id]
        if sequence.where is Where.ENDED:
            return None
        carried = min(sequence.computed_tokens, sequence.total_tokens) if keep_kv else 0
        self.ranks[sequence.rank].remove(sequence)
        sequence.reason = "abort"
        sequence.finish_s = self.now
        return sequence.output_tokens, carried

    def pause(self, t: float, clear_cache: bool) -> None:
        """Make no step until `resume`; with `clear_cache` preempt everything and empty the prefix caches."""
        self._reach(t)
        self.paused = True
        if clear_cache:
            self._clear()

    def resume(self, t: float) -> None:
        """Go on after a pause."""
        self._reach(t)
        self.paused = False

    def swap(self, t: float, version: int, keep_kv: bool) -> None:
        """Take new weights between two steps; without `keep_kv` all KV is dropped."""
        self._reach(t)
        if not keep_kv:
            self._clear()
        for rank in self.ranks:
            rank.pool.version = version

    def set_rate(self, t: float, id: Hashable, rate: float, drafts: int) -> None:
        """Change tokens per step and drafts per step of a request."""
        self._reach(t)
        sequence = self.sequences[id]
        if sequence.where is Where.ENDED:
            return
        self._check_fits(id, sequence.prompt_tokens, sequence.target_tokens, sequence.target_tokens, drafts)
        sequence.rate = round(rate * FP)
        sequence.drafts = drafts

    def _reach(self, t: float) -> None:
        self.advance(t)
        if self.paused or not self.has_work:
            self.now = max(self.now, t)

    def _clear(self) -> None:
        for rank in self.ranks:
            rank.preempt_all()

    def _check_fits(self, id: Hashable, prompt_tokens: int, output_tokens: int, target: int, drafts: int) -> None:
        limits = self.limits
        end_tokens = prompt_tokens + target - 1
        most_tokens = end_tokens + max(drafts, limits.num_speculative_tokens)
        faults = [
            (prompt_tokens < 1, "prompt_tokens", prompt_tokens, ">= 1"),
            (output_tokens < 1, "output_tokens", output_tokens, ">= 1"),
            (prompt_tokens >= limits.max_model_len, "prompt_tokens", prompt_tokens, f"< {limits.max_model_len}"),
            (
                blocks_for(most_tokens, limits.block_size) > limits.num_blocks,
                "blocks",
                blocks_for(most_tokens, limits.block_size),
                f"<= {limits.num_blocks}",
            ),
            (
                not limits.chunked_prefill and end_tokens > limits.max_num_batched_tokens,
                "tokens without chunked prefill",
                end_tokens,
                f"<= {limits.max_num_batched_tokens}",
            ),
        ]
        if found := [Fault(f"request {id}", place, given, allowed) for bad, place, given, allowed in faults if bad]:
            raise BadInput(found)

    # --- what others see ---

    def state(self) -> list[tuple[int, int, int, int]]:
        """Running, waiting, used blocks and tokens with KV of `running`, per rank."""
        return [
            (
                len(rank.running),
                len(rank.waiting),
                rank.pool.num_used,
                sum(sequence.computed_tokens for sequence in rank.running),
            )
            for rank in self.ranks
        ]

    def results(self) -> dict[Hashable, Result]:
        """What became of each request so far."""
        return {
            id: Result(
                first_token_s=sequence.first_token_s,
                finish_s=sequence.finish_s,
                reason=sequence.reason,
                output_tokens=sequence.output_tokens,
                preemptions=sequence.preemptions,
                cached_tokens=sequence.cached_tokens,
                recomputed_tokens=sequence.recomputed_tokens,
            )
            for id, sequence in self.sequences.items()
        }

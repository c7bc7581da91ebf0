"""The reference engine as a `SteppedEngine`, for recordings."""

from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.stepped import Scheduled, Step
from tests.reference.engine import Engine


class SteppedReference:
    """One rank, driven call by call; time does not matter."""

    def __init__(self, limits: EngineLimits) -> None:
        self.engine = Engine(limits, StepCost.affine(limits.max_num_batched_tokens, limits.max_num_seqs))
        (self.rank,) = self.engine.ranks

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
        self.engine.dispatch(
            self.engine.now,
            id,
            prompt_tokens,
            output_tokens,
            priority=priority,
            parent=parent,
            shared_tokens=shared_tokens,
        )

    def abort(self, id: str) -> None:
        self.engine.abort(self.engine.now, id)

    def update_weights(self, clear_cache: bool) -> None:
        self.engine.pause(self.engine.now, clear_cache)
        self.engine.resume(self.engine.now)

    def set_speculation(self, id: str, drafts: int, accepted: int) -> None:
        self.engine.set_rate(self.engine.now, id, 1 + accepted, drafts)

    def step(self) -> Step | None:
        if not self.engine.has_work:
            return None
        self.engine.step()
        log = self.engine.log.pop()
        (rank,) = log.ranks
        return Step(
            scheduled=[
                Scheduled(str(grant.sequence.id), grant.tokens, grant.drafts, grant.computed, grant.had_output)
                for grant in rank.batch.grants
            ],
            preempted=[str(id) for id in [*rank.batch.preempted_before, *rank.batch.preempted]],
            outputs={str(id): tokens for id, tokens in log.delivered.items()},
            finished=[str(id) for id in log.finished],
            blocks_peak=rank.blocks_peak,
            running_peak=rank.running_peak,
            waiting_peak=rank.waiting_peak,
            blocks_used=rank.blocks_used,
            running=rank.running,
            waiting=rank.waiting,
            kv_held=sum(sequence.computed_tokens for sequence in self.rank.running),
        )

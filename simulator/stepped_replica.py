"""The compiled replica as a `SteppedEngine`: one step per call, told in the terms of a recording."""

from rollsim.simulator.costs import StepCost
from rollsim.simulator.kernel import decode, state
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.replica import Replica
from rollsim.simulator.stepped import Scheduled, Step


class SteppedReplica:
    """One scheduling rank, driven step by step; without a `cost` every step takes as long."""

    def __init__(self, limits: EngineLimits, cost: StepCost | None = None) -> None:
        cost = cost or StepCost.affine(limits.max_num_batched_tokens, limits.max_num_seqs)
        self._replica = Replica(limits, cost)
        self._replica.arrays.engine[0]["traced"] = 1
        self._ids: list[str] = []
        self._slots: dict[str, int] = {}
        self._outputs: dict[str, int] = {}
        self._preempted: list[str] = []

    @property
    def now_s(self) -> float:
        """Time of the engine's clock [s]."""
        return self._replica.now_s

    def add(  # noqa: D102
        self,
        id: str,
        prompt_tokens: int,
        output_tokens: int,
        *,
        priority: int = 0,
        parent: str | None = None,
        shared_tokens: int = 0,
    ) -> None:
        self._replica.dispatch(
            self._replica.now_s,
            id,
            prompt_tokens,
            output_tokens,
            priority=priority,
            parent=parent,
            shared_tokens=shared_tokens,
        )
        self._slots[id] = len(self._ids)
        self._ids.append(id)
        self._outputs[id] = 0

    def abort(self, id: str) -> None:  # noqa: D102
        self._replica.abort(self._replica.now_s, id)
        self._outputs.pop(id, None)

    def update_weights(self, clear_cache: bool) -> None:  # noqa: D102
        now_s = self._replica.now_s
        self._replica.pause(now_s, clear_cache)
        if clear_cache:
            self._collect_preempted()
        self._replica.resume(now_s)

    def set_speculation(self, id: str, drafts: int, accepted: int) -> None:  # noqa: D102
        self._replica.set_rate(self._replica.now_s, id, 1 + accepted, drafts)

    def _collect_preempted(self) -> None:
        s = self._replica.arrays
        self._preempted += [self._ids[r] for r in s.slot["preempted"][0, : s.rank[0]["n_preempted"]]]

    def step(self) -> Step | None:  # noqa: D102
        if self._replica.arrays.engine[0]["n_unfinished"] == 0:
            return None
        self._replica.run_steps(1)
        s = self._replica.arrays
        rank = s.rank[0]
        self._collect_preempted()
        outputs = {id: int(decode.output_tokens(s, self._slots[id])) for id in self._outputs}
        delivered = {id: tokens for id, tokens in outputs.items() if tokens != self._outputs[id]}
        self._outputs = outputs
        finished = [str(id) for id in self._replica.ended()]
        for id in finished:
            del self._outputs[id]
        preempted, self._preempted = self._preempted, []
        return Step(
            scheduled=[
                Scheduled(
                    self._ids[row["scheduled"]],
                    int(row["tokens"]),
                    int(row["drafts"]),
                    int(row["computed"]),
                    bool(row["had_output"]),
                )
                for row in s.slot[0, : rank["n_sched"]]
            ],
            preempted=preempted,
            outputs=delivered,
            finished=finished,
            blocks_peak=int(rank["blocks_peak"]),
            running_peak=int(rank["running_peak"]),
            waiting_peak=int(rank["waiting_peak"]),
            blocks_used=int(s.engine[0]["num_blocks"] - rank["free_keyless"] - rank["free_keyed"]),
            running=int(rank["n_running"]),
            waiting=int(rank["n_waiting"]),
            kv_held=sum(
                int(decode.computed_tokens(s, r))
                for id in self._outputs
                if state.RUNNING <= s.request[r := self._slots[id]]["state"] <= state.ENDING
            ),
        )

"""The compiled replica with the few extra views that `outcome` reads."""

from rollsim.simulator.kernel import decode, state
from rollsim.simulator.replica import Replica


class TimedReplica(Replica):
    """A `TimedEngine`; every `advance` also looks, which must change nothing."""

    @property
    def now(self) -> float:
        return self.now_s

    def state_of(self, d: int) -> tuple[int, int, int, int]:
        s, rank = self.arrays, self.arrays.rank[d]
        kv_tokens = sum(
            int(decode.computed_tokens(s, r))
            for r in range(len(self.results()))
            if s.request[r]["rank"] == d and state.RUNNING <= s.request[r]["state"] <= state.ENDING
        )
        blocks = int(s.engine[0]["num_blocks"] - rank["free_keyless"] - rank["free_keyed"])
        return int(rank["n_running"]), int(rank["n_waiting"]), blocks, kv_tokens

    def advance(self, t_s: float) -> None:
        self.look(t_s)
        super().advance(t_s)

    def state(self) -> list[tuple[int, int, int, int]]:
        return [self.state_of(d) for d in range(self.limits.lockstep_ranks)]

"""A replica that the world lets run alone, and touches now and then."""

import math

import numpy as np

from rollsim.simulator import snapshot
from rollsim.simulator.kernel import calls, loop, state, touches
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.trajectories import Trajectories

_ANY = 1 << 62
_FIRST_SLOTS = 64
_COUNTERS = {
    "prefill": "prefill_time_s",
    "decode": "decode_time_s",
    "reprefill": "recompute_time_s",
    "host": "host_time_s",
}


class RunAhead:
    """One replica; a request is known by its row, counted from 0 since the replica was last emptied.

    Parameters
    ----------
    limits : EngineLimits
    tables : state.Tables
        Costs; replicas of a kind share them.
    trajectories : Trajectories
        Where results are written.
    log_spans : bool
        Keep a row for each stay in the running batch (`state.span`).

    Attributes
    ----------
    idle : list of (t0_s, t1_s, cause)
        Closed intervals without steps; the cause is that of a pull of weights, else None.
    version : int
        Version of its weights.

    Notes
    -----
    `touch(t)` takes every step that starts before t, so that what follows applies at the first step boundary from t on.
    There are two ways between touches. `advance` goes no further than the step in flight: for who must know every
    finish. `run_to_idle` runs until nothing is left: a snapshot is taken first, an earlier touch comes back to it, and
    since nothing touched the replica in between, running again repeats the same bits. With asynchronous scheduling an
    end at t is known only when the step that starts at t is under way: who reacts to it touches the boundary after.
    """

    def __init__(
        self, limits: EngineLimits, tables: state.Tables, trajectories: Trajectories, *, log_spans: bool = False
    ) -> None:
        self.limits = limits
        self._trajectories = trajectories
        spans = 4 * limits.max_num_seqs * limits.lockstep_ranks if log_spans else 0
        self.state = state.allocate(limits, tables, _FIRST_SLOTS, spans)
        self.owner = np.empty(_FIRST_SLOTS, np.int64)
        self.n = 0
        self.idle: list[tuple[float, float, str | None]] = []
        self.version = 0
        self._swap_s, self._swap_version = np.full(8, -math.inf), np.zeros(8, np.int64)
        self._swaps = 1
        self._reported = 0
        self._window = 0
        self._saved: snapshot.Snapshot | None = None

    @property
    def now_s(self) -> float:
        """Start of its next step, where it has run to [s]."""
        return float(self.state.engine[0]["now_s"])

    def advance(self, t_s: float, horizon_s: float = -math.inf) -> tuple[np.ndarray, float, bool]:
        """Take the steps that start before t_s, and batch changes up to horizon_s or the next end.

        Returns
        -------
        tuple
            Numbers of the trajectories that ended up to t_s and were not reported before, in the order of their ends,
            their results recorded; a time before which no other ends; whether one does end then.
        """
        before, rows = self._reported, self._trajectories.rows
        swaps = self._swap_s, self._swap_version, self._swaps
        while True:
            reason, self._reported, next_s, known = calls.advance(
                self.state, t_s, horizon_s, rows, self.owner, self._reported, *swaps
            )
            if reason != loop.LOG_FULL:
                break
            self.state = state.lengthen_spans(self.state)
        return self.owner[self.state.slot["finished"][0, before : self._reported]], next_s, known

    def report(self, t_s: float) -> np.ndarray:
        """As `advance`, of what has run already: the numbers alone."""
        before = self._reported
        swaps = self._swap_s, self._swap_version, self._swaps
        self._reported = calls.record(self.state, t_s, self._trajectories.rows, self.owner, before, *swaps)
        return self.owner[self.state.slot["finished"][0, before : self._reported]]

    def run_to_idle(self) -> tuple[np.ndarray, np.ndarray]:
        """Run until nothing is left; returns numbers that were not reported, and when they end [s]: never if paused."""
        if self.state.engine[0]["paused"]:
            live = np.flatnonzero(self.state.request["state"][: self.n] < state.FINISHED)
            return self.owner[live], np.full(len(live), math.inf)
        if self.state.engine[0]["n_unfinished"]:
            if self._saved is None:
                self._window = snapshot.window(self.state, self._window, self.n)
                self._saved = snapshot.take(self.state, self._window, self.n)
            self._run(math.inf, _ANY)
        ended = self.state.slot["finished"][0, self._reported : self.state.engine[0]["n_finished"]]
        return self.owner[ended], self.state.request["finish_s"][ended]

    def _run(self, until_s: float, max_steps: int, max_ends: int = _ANY) -> None:
        while loop.run(self.state, until_s, max_ends, max_steps) == loop.LOG_FULL:
            self.state = state.lengthen_spans(self.state)

    def _back(self, t_s: float) -> None:
        """Come back from beyond t_s, if it ran ahead."""
        if self._saved is not None and self.now_s > t_s:
            snapshot.put(self.state, self._saved)
        self._saved = None

    def touch(self, t_s: float, cause: str | None = None) -> None:
        """Stand at the first step boundary from t_s on; what it idled until then has this cause."""
        self._back(t_s)
        self._run(t_s, _ANY)
        e = self.state.engine[0]
        if e["n_finished"] < self._reported:
            self._run(math.inf, _ANY, int(self._reported - e["n_finished"]))
        if e["now_s"] < t_s:
            self.idle.append((float(e["now_s"]), t_s, cause))
            e["now_s"] = t_s
        most_rows = self.limits.max_num_seqs * self.limits.lockstep_ranks
        if 0 < len(self.state.span) < e["span_n"] + most_rows:
            self.state = state.lengthen_spans(self.state)

    def dispatch(self, t_s: float, numbers: np.ndarray) -> None:
        """Queue trajectories in this order; neighbours of one group share the prompt's KV."""
        self.touch(t_s)
        needed = self.n + len(numbers)
        if needed > len(self.state.request):
            capacity = max(needed, 2 * len(self.state.request))
            self.state = state.grow(self.state, capacity)
            longer = np.empty(capacity, np.int64)
            longer[: self.n] = self.owner[: self.n]
            self.owner = longer
        rows = self._trajectories.rows
        calls.take_in(self.state, rows, numbers, self.owner, self.n)
        self.n = needed

    def take_out(self, t_s: float, numbers: np.ndarray) -> np.ndarray:
        """Take trajectories away at the first step boundary from t_s on, without their KV.

        Returns the numbers of those that had not ended, `output_tokens` written; the others will be reported.
        """
        self.touch(t_s)
        rows, request = self._trajectories.rows, self.state.request
        live = numbers[request["state"][rows["request"][numbers]] < state.FINISHED]
        for r in rows["request"][live].tolist():
            touches.take_out(self.state, r)
        q = request[rows["request"][live]]
        begun = live[(rows["output_tokens"][live] == 0) & (q["out"] > 0)]
        first_s = request["first_token_s"][rows["request"][begun]]
        rows["t_first_token_s"][begun] = first_s
        rows["version_start"][begun] = self._version_at(first_s)
        admitted = live[(rows["t_start_s"][live] < 0) & (q["admit_s"] >= 0)]
        rows["t_start_s"][admitted] = request["admit_s"][rows["request"][admitted]]
        rows["version_end"][live] = self.version
        rows["output_tokens"][live] = q["out"]
        rows["t_end_s"][live] = self.now_s
        for name, known in (("cached_tokens", q["cached"]), ("recomputed_tokens", q["recomputed"])):
            rows[name][live] = np.maximum(rows[name][live], 0) + known
        resumed = rows["attempts"][live] > 0
        rows["num_preempted"][live] = np.maximum(rows["num_preempted"][live], 0) + q["preemptions"] - resumed
        return live

    def _version_at(self, t_s: np.ndarray) -> np.ndarray:
        found = np.searchsorted(self._swap_s[: self._swaps], t_s, side="left") - 1
        return self._swap_version[np.maximum(found, 0)]

    def pause(self, t_s: float) -> None:
        """Make no step until `swap`."""
        self.touch(t_s)
        self.state.engine[0]["paused"] = 1

    def swap(self, t_s: float, version: int, *, keep_kv: bool, cause: str | None = None) -> None:
        """Go on at t_s with new weights; KV of the old ones is kept, or recomputed."""
        self.touch(t_s, cause)
        if not keep_kv:
            touches.preempt_all(self.state)
            if not self.state.engine[0]["n_unfinished"]:
                self._empty()
        touches.set_version(self.state, version)
        self.version = version
        if self._swaps == len(self._swap_s):
            self._swap_s = np.append(self._swap_s, np.full(self._swaps, math.inf))
            self._swap_version = np.append(self._swap_version, np.zeros(self._swaps, np.int64))
        self._swap_s[self._swaps], self._swap_version[self._swaps] = self.now_s, version
        self._swaps += 1
        self.state.engine[0]["paused"] = 0

    def _empty(self) -> None:
        """Forget all requests and their KV; every finish must have been reported."""
        if self._reported < self.state.engine[0]["n_finished"] or len(self.state.span):
            return
        s, n = self.state, self.n
        s.request[:n] = state.fresh(1)
        s.slot["first_segment"][:, :n] = s.slot["last_segment"][:, :n] = state.NONE
        e = s.engine[0]
        e["seg_top"] = e["hold_top"] = e["n_finished"] = 0
        e["seg_free"] = e["hold_free"] = state.NONE
        self.n = self._reported = self._window = 0
        self._swaps = 0

    def spent_s(self) -> dict[str, float]:
        """Seconds of all steps so far by what they were for; they and `idle` add up to its time."""
        e = self.state.engine[0]
        return {category: float(e[counter]) for category, counter in _COUNTERS.items()}

    def spent_until_s(self, t_s: float) -> dict[str, float]:
        """As `spent_s`, with only the part up to t_s of the step in flight then; stands touched at t_s afterwards.

        That step is found by running again from a snapshot; one that was already in flight at the last touch is split
        in proportion to all steps.
        """
        self._back(t_s)
        if not self.state.engine[0]["n_unfinished"]:
            self.touch(t_s)
            return self.spent_s()
        before = snapshot.take(self.state, self._window, self.n)
        first, start_s = self.spent_s(), self.now_s
        self.touch(t_s)
        spent, now_s = self.spent_s(), self.now_s
        pulling = self.idle and self.idle[-1][1] == now_s
        if now_s <= t_s or pulling:
            return spent
        steps = int(self.state.engine[0]["step"] - before.engine[0]["step"])
        if steps:
            snapshot.put(self.state, before)
            self._run(t_s, steps - 1)
            first, start_s = self.spent_s(), self.now_s
            self._run(t_s, _ANY)
        else:
            first, start_s = dict.fromkeys(spent, 0.0), now_s - sum(spent.values())
        over = (now_s - t_s) / (now_s - start_s)
        return {name: seconds - over * (seconds - first[name]) for name, seconds in spent.items()}

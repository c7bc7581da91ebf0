"""One engine replica in the world: touches at any time, looking without a trace, ends in time order."""

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from rollsim.simulator.costs import StepCost
from rollsim.simulator.kernel import decode, loop, state, touches
from rollsim.simulator.limits import MAX_RATE, EngineLimits
from rollsim.traces.errors import BadInput, Fault

_FOREVER = 1 << 62


@dataclass(frozen=True)
class Look:
    """What a replica shows at a time; tokens are tokens, times are seconds."""

    now_s: float
    running: int
    waiting: int
    kv_tokens: int
    blocks_used: int
    output_tokens: dict[Hashable, int]


@dataclass(frozen=True)
class Result:
    """Fate of one request; times [s] are None where nothing happened."""

    first_token_s: float | None
    finish_s: float | None
    output_tokens: int
    preemptions: int
    reason: str | None
    cached_tokens: int
    recomputed_tokens: int


def unfit(limits: EngineLimits, prompt_tokens: int, output_tokens: int, drafts: int = 0) -> str | None:
    """Why a request could never be served within `limits`, or None.

    The pool must hold the whole sequence less its last token, which is never fed back (rules 1.4 and 7.4).
    """
    if prompt_tokens < 1 or output_tokens < 1:
        return "prompt and output must be at least 1 token"
    if prompt_tokens >= limits.max_model_len:
        return f"prompt of {prompt_tokens} tokens must be below max_model_len = {limits.max_model_len}"
    total = prompt_tokens + min(output_tokens, limits.max_model_len - prompt_tokens) - 1
    width = max(drafts, limits.num_speculative_tokens)
    blocks = -(-(total + width) // limits.block_size)
    if blocks > limits.num_blocks:
        return f"needs {blocks} KV blocks of {limits.block_size} tokens at its end, the replica has {limits.num_blocks}"
    if not limits.chunked_prefill and total > limits.max_num_batched_tokens:
        return (
            f"needs a prefill of up to {total} tokens at once (chunked prefill is off), "
            f"max_num_batched_tokens = {limits.max_num_batched_tokens}"
        )
    return None


def _bad_rate(rate: float, drafts: int) -> str | None:
    if 1.0 <= rate <= MAX_RATE and drafts >= 0:
        return None
    return f"needs a rate of 1 to {MAX_RATE} tokens per step and no fewer than 0 drafts, not {rate} and {drafts}"


def _refuse(id: Hashable, *reasons: str | None) -> None:
    faults = [Fault(f"request {id!r}", message=reason) for reason in reasons if reason is not None]
    if faults:
        raise BadInput(faults)


class Replica:
    """A replica of the compiled engine.

    Parameters
    ----------
    limits : EngineLimits
    cost : StepCost
    capacity : int
        Request slots to begin with; grows.
    log_spans : bool
        Keep a row per incarnation (`spans`).

    Notes
    -----
    A touch at time t lets the step in flight end first and takes effect at that step boundary (DESIGN section 3).
    `look` works on a copy: it changes no bit of what follows.
    """

    def __init__(self, limits: EngineLimits, cost: StepCost, *, capacity: int = 64, log_spans: bool = False) -> None:
        self.limits, self.cost = limits, cost
        spans = 4 * limits.max_num_seqs * limits.lockstep_ranks if log_spans else 0
        self.arrays = state.allocate(limits, state.tables(cost), capacity, spans)
        self._slots: dict[Hashable, int] = {}
        self._ids: list[Hashable] = []
        self._ends_seen = 0

    @property
    def now_s(self) -> float:
        """Start of the next step [s]."""
        return float(self.arrays.engine[0]["now_s"])

    def _run(self, until_s: float, max_steps: int = _FOREVER) -> int:
        while True:
            reason = loop.run(self.arrays, float(until_s), _FOREVER, max_steps)
            if reason != loop.LOG_FULL:
                return reason
            self.arrays = state.lengthen_spans(self.arrays)

    def advance(self, t_s: float) -> None:
        """Take every step that starts before t_s."""
        self._run(t_s)

    def run(self) -> None:
        """Work until nothing is left."""
        self._run(math.inf)

    def run_steps(self, n: int) -> None:
        """Take at most n steps."""
        self._run(math.inf, max_steps=n)

    def ended(self) -> list[Hashable]:
        """Requests that finished since the last call, in order."""
        n = int(self.arrays.engine[0]["n_finished"])
        new = [self._ids[r] for r in self.arrays.slot["finished"][0, self._ends_seen : n]]
        self._ends_seen = n
        return new

    def _touch(self, t_s: float) -> None:
        self._run(t_s)
        engine = self.arrays.engine[0]
        engine["now_s"] = max(engine["now_s"], t_s)
        # A touch may end the stay of every running request, as a step may.
        most_rows = self.limits.max_num_seqs * self.limits.lockstep_ranks
        if 0 < len(self.arrays.span) < engine["span_n"] + most_rows:
            self.arrays = state.lengthen_spans(self.arrays)

    def dispatch(
        self,
        t_s: float,
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
        kv_version: int | None = None,
    ) -> None:
        """Queue a request.

        Parameters
        ----------
        t_s : float
            Time of the touch [s].
        id : Hashable
            Name of the request, new on this replica.
        prompt_tokens, output_tokens : int
            Length of the prompt and of the response it will give [tokens].
        parent, shared_tokens
            The request's first `shared_tokens` tokens are those of `parent` (prompt and response).
        priority : int
            Smaller goes first under the priority policy.
        rate, drafts
            Tokens per decode step (in units of 1/1024) and drafts verified in each.
        rank : int, optional
            Lockstep rank; else the one with fewest unfinished requests.
        kv_tokens, kv_version
            Leading tokens whose KV arrives with the request, and the version of the weights that made it (None: those
            of the replica).

        Raises
        ------
        BadInput
            If the request can never be served, its name is taken, or its parent or rank unknown.
        """
        ranks = self.limits.lockstep_ranks
        _refuse(
            id,
            unfit(self.limits, prompt_tokens, output_tokens, drafts),
            _bad_rate(rate, drafts),
            "a request of this name was dispatched before" if id in self._slots else None,
            f"parent {parent!r} was never dispatched" if parent is not None and parent not in self._slots else None,
            f"rank must be 0 to {ranks - 1}, not {rank}" if rank is not None and not 0 <= rank < ranks else None,
        )
        self._touch(t_s)
        r = len(self._ids)
        if r == len(self.arrays.request):
            self.arrays = state.grow(self.arrays, 2 * r)
        if rank is None:
            rank = int(np.argmin(self.arrays.rank["n_unfinished"]))
        fill(self.arrays, slice(r, r + 1), prompt_tokens, output_tokens, self.limits.max_model_len)
        q = self.arrays.request[r]
        q["priority"], q["rank"], q["kv_tokens"] = priority, rank, kv_tokens
        q["rate"], q["drafts"] = round(rate * state.FP), drafts
        q["kv_version"] = self.arrays.engine[0]["version"] if kv_version is None else kv_version
        if parent is not None:
            q["parent"], q["shared"] = self._slots[parent], shared_tokens
        self._slots[id] = r
        self._ids.append(id)
        touches.enqueue(self.arrays, r)

    def _live(self, t_s: float, id: Hashable) -> int | None:
        self._touch(t_s)
        r = self._slots[id]
        return r if self.arrays.request[r]["state"] < state.FINISHED else None

    def abort(self, t_s: float, id: Hashable) -> int | None:
        """End request `id` early; returns its tokens so far, None if it had ended."""
        taken = self.take_out(t_s, id, keep_kv=False)
        return None if taken is None else taken[0]

    def take_out(self, t_s: float, id: Hashable, keep_kv: bool) -> tuple[int, int] | None:
        """Take request `id` away, at the step boundary reached at t_s [s].

        Returns
        -------
        tuple of int, or None
            Output tokens delivered (those in flight are dropped), and with `keep_kv` the known tokens whose KV goes
            with it (else 0); None if it had ended. The KV's version: `kv` before.
        """
        r = self._live(t_s, id)
        if r is None:
            return None
        kv_tokens = touches.take_out(self.arrays, r)
        return int(self.arrays.request[r]["out"]), int(kv_tokens) if keep_kv else 0

    def pause(self, t_s: float, clear_cache: bool) -> None:
        """Make no step until `resume`; `clear_cache` preempts all and empties the prefix cache (rule 8.1)."""
        self._touch(t_s)
        self.arrays.engine[0]["paused"] = 1
        if clear_cache:
            touches.preempt_all(self.arrays)

    def resume(self, t_s: float) -> None:
        """Go on after `pause`."""
        self._touch(t_s)
        self.arrays.engine[0]["paused"] = 0

    def swap(self, t_s: float, version: int, keep_kv: bool) -> None:
        """New weights at the step boundary reached at t_s [s], without a pause.

        Parameters
        ----------
        version : int
            Of the new weights; higher than before. Blocks begun and tokens sampled from now on carry it.
        keep_kv : bool
            Go on with the KV of the old weights; else every running request is preempted and the prefix cache emptied.
        """
        self._touch(t_s)
        if not keep_kv:
            touches.preempt_all(self.arrays)
        touches.set_version(self.arrays, version)

    def set_rate(self, t_s: float, id: Hashable, rate: float, drafts: int) -> None:
        """Request `id` makes `rate` tokens per decode step from now on, verifying `drafts` drafts.

        Raises
        ------
        BadInput
            If it could no longer be served with so many drafts.
        """
        r = self._live(t_s, id)
        if r is not None:
            q = self.arrays.request[r]
            fault = unfit(self.limits, int(q["prompt"]), int(q["target"]), drafts)
            _refuse(id, fault, _bad_rate(rate, drafts))
            touches.set_rate(self.arrays, r, round(rate * state.FP), drafts)

    def kv(self, id: Hashable) -> tuple[int, int]:
        """Where the KV of request `id` is: tokens that are valid here, and the version of the oldest weights in them.

        A waiting request has only what came with it (`kv_tokens`); blocks that it might hit in the prefix cache do not
        count. With 0 tokens the version says nothing.
        """
        r = self._slots[id]
        q = self.arrays.request[r]
        if q["state"] == state.WAITING:
            tokens = q["kv_tokens"]
        elif q["state"] < state.FINISHED:
            known = q["prompt"] + decode.output_tokens(self.arrays, r)
            tokens = min(decode.computed_tokens(self.arrays, r), known)
        else:
            tokens = 0
        return int(tokens), int(q["kv_version"])

    def look(self, t_s: float) -> Look:
        """What the replica shows at t_s: the state after its last step that began before t_s."""
        copy = state.clone(self.arrays._replace(span=self.arrays.span[:0]))
        loop.run(copy, float(t_s), _FOREVER, _FOREVER)
        engine, rank = copy.engine[0], copy.rank
        live = [r for r in range(len(self._ids)) if state.RUNNING <= copy.request[r]["state"] <= state.ENDING]
        return Look(
            now_s=float(engine["now_s"]),
            running=int(rank["n_running"].sum()),
            waiting=int(rank["n_waiting"].sum()),
            kv_tokens=sum(int(decode.computed_tokens(copy, r)) for r in live),
            blocks_used=int(engine["num_blocks"] * len(rank) - rank["free_keyless"].sum() - rank["free_keyed"].sum()),
            output_tokens={self._ids[r]: int(decode.output_tokens(copy, r)) for r in live},
        )

    def results(self) -> dict[Hashable, Result]:
        """Fate of every request so far."""
        reasons = {state.FINISHED: "length", state.ABORTED: "abort"}
        return {
            id: Result(
                first_token_s=float(q["first_token_s"]) if q["first_token_s"] >= 0 else None,
                finish_s=float(q["finish_s"]) if q["state"] >= state.FINISHED else None,
                output_tokens=int(decode.output_tokens(self.arrays, r)),
                preemptions=int(q["preemptions"]),
                reason=reasons.get(int(q["state"])),
                cached_tokens=int(q["cached"]),
                recomputed_tokens=int(q["recomputed"]),
            )
            for r, (id, q) in enumerate(zip(self._ids, self.arrays.request, strict=False))
        }


def fill(
    s: state.State,
    slots: slice,
    prompt_tokens: "np.ndarray | int",
    output_tokens: "np.ndarray | int",
    max_model_len: int,
) -> None:
    """Write fresh request records into `slots` (one scheduling rank, no sharing, one token per step)."""
    q = s.request[slots]
    q[:] = state.fresh(1)
    q["prompt"] = prompt_tokens
    q["target"] = np.minimum(output_tokens, max_model_len - q["prompt"])

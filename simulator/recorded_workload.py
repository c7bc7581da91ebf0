"""Replay of recorded groups as a workload."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rollsim.simulator.rng import Streams
from rollsim.simulator.workload import Responses, Visits
from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.requests import RequestTrace

Order = Literal["resampled", "recorded"]


class RecordedWorkload:
    """Groups of a recorded trace as prompts: drawn at random with replacement, or in turn, over and over.

    A prompt gives every response of its group as it was recorded, with its reward if the trace has one. Further visits
    to it, and laps of the trace, meet the same responses again (`reuse`) or draw from those of the group with
    replacement (`redraw`). One beyond the recorded ones of its group is an `extra`: a recorded response of the group,
    drawn at random, with its length blurred by exp(h z) with z standard normal, h = 0.9 s m**(-1/5) (Silverman's rule
    of thumb, 1986, equation 3.31), s the pooled standard deviation of log lengths within groups and m the responses of
    the group. One that was truncated is not blurred, since its length is the limit; and none gets longer than the
    longest recorded. Responses of the trace that had not ended, and those that are extras themselves, are left out.

    Parameters
    ----------
    trace : RequestTrace
        Requests without a group count as groups of one.
    streams : Streams
    visits : str
    order : str
        `resampled`: the group of a prompt is drawn by the seed, so that the runs of several seeds differ as other
        samples of the same source would (Efron, 1979: the bootstrap, by group). `recorded`: the groups in turn.

    Attributes
    ----------
    name, content_hash : str
        Of the trace.
    notes : tuple of str
        What a user should know.
    longest_prompt_tokens, longest_output_tokens : int

    Raises
    ------
    BadInput
        If no response of the trace has ended.
    """

    def __init__(
        self, trace: RequestTrace, streams: Streams, *, visits: Visits = "redraw", order: Order = "resampled"
    ) -> None:
        self.name, self.content_hash, self.claims = trace.path, trace.content_hash, ()
        trace, left_out = _recorded(trace)
        self.notes = trace.notes + left_out
        if trace.unused_columns:
            self.notes = (*self.notes, f"columns of the trace that are not used: {', '.join(trace.unused_columns)}")
        self.streams, self.visits, self.order = streams, visits, order
        key = np.where(trace.group < 0, -1 - np.arange(len(trace)), trace.group)
        _, first, member_of, sizes = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        turn = np.argsort(first)
        place = np.empty_like(turn)
        place[turn] = np.arange(len(turn))
        rows = np.argsort(place[member_of], kind="stable")
        self._sizes = sizes[turn]
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._prompt_tokens = trace.prompt_tokens[first[turn]]
        self._tokens = trace.output_tokens[rows]
        count = len(trace)
        self._truncated = (np.zeros(count, bool) if trace.truncated is None else trace.truncated)[rows]
        self._reward = (np.full(count, np.nan) if trace.reward is None else trace.reward)[rows]
        self.longest_prompt_tokens, self.longest_output_tokens = int(self._prompt_tokens.max()), int(self._tokens.max())
        self._blur = 0.9 * _spread_within(np.log(self._tokens), self._starts, self._sizes) * self._sizes**-0.2
        if self._sizes.max() == 1:
            self.notes = (*self.notes, "the trace has no groups: further responses to a prompt repeat its only one")

    def __len__(self) -> int:
        return len(self._sizes)

    def draw(
        self,
        prompt: ArrayLike,
        sample: ArrayLike,
        *,
        visit: ArrayLike = 0,
        attempt: ArrayLike = 0,
        version: ArrayLike = 0,  # noqa: ARG002 - a record knows one version
    ) -> Responses:
        """Responses to prompts, by key; see `LawWorkload.draw`. Pass rates are unknown."""
        prompt, sample, visit, attempt = np.broadcast_arrays(prompt, sample, visit, attempt)
        lap = np.zeros_like(prompt)
        if self.order == "resampled":
            group = (self.streams.uniform("replay.group", prompt) * len(self)).astype(np.int64)
        else:
            lap, group = np.divmod(prompt, len(self))
        size = self._sizes[group]
        extra = sample >= size
        member = np.where(extra, 0, sample)
        again = extra if self.visits == "reuse" else extra | (visit > 0) | (lap > 0)
        if again.any():
            key = prompt[again], visit[again], sample[again], attempt[again]
            member = member.copy()
            member[again] = self.streams.uniform("replay.member", *key) * size[again]
        row = self._starts[group] + member
        tokens, truncated = np.array(self._tokens[row]), np.array(self._truncated[row])
        blurred = extra & ~truncated
        if blurred.any():
            key = prompt[blurred], visit[blurred], sample[blurred], attempt[blurred]
            factor = np.exp(self._blur[group[blurred]] * self.streams.normal("replay.blur", *key))
            tokens[blurred] = np.rint(np.clip(tokens[blurred] * factor, 1, self.longest_output_tokens))
        return Responses(
            prompt_tokens=self._prompt_tokens[group],
            output_tokens=tokens,
            truncated=truncated,
            pass_rate=np.full(tokens.shape, np.nan),
            reward=np.array(self._reward[row]),
            extra=extra,
        )


def _recorded(trace: RequestTrace) -> tuple[RequestTrace, tuple[str, ...]]:
    """Return the responses whose length is recorded, and what is said of the others."""
    none = np.zeros(len(trace), bool)
    unfinished = none if trace.unfinished is None else trace.unfinished
    extra = (none if trace.extra is None else trace.extra) & ~unfinished
    kept = ~unfinished & ~extra
    if not kept.any():
        allowed = "at least one that has ended and was not drawn beyond its group"
        message = f"none of its {len(trace):,} responses has a recorded length"
        raise BadInput(Fault(trace.path, allowed=allowed, message=message))
    whole = f"of {len(trace):,} responses of the trace"
    notes = []
    if unfinished.any():
        share = "the longest are more often among them"
        notes.append(f"{unfinished.sum():,} {whole} had not ended and are left out: {share}")
    if extra.any():
        notes.append(f"{extra.sum():,} {whole} were drawn beyond their group themselves and are left out")
    if trace.reward is not None and (unknown := int(np.isnan(trace.reward[kept]).sum())):
        notes.append(f"the rewards of {unknown:,} {whole} are not known")
    return (trace if kept.all() else trace.select(kept)), tuple(notes)


def _spread_within(values: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> float:
    """Pooled standard deviation within groups that are neighbours; 0 if no group has two."""
    freedom = len(values) - len(sizes)
    if not freedom:
        return 0.0
    means = np.add.reduceat(values, starts) / sizes
    return float(np.sqrt(((values - np.repeat(means, sizes)) ** 2).sum() / freedom))

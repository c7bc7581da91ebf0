"""Replay of recorded groups as a workload."""

import numpy as np
from numpy.typing import ArrayLike

from rollsim.simulator.rng import Streams
from rollsim.simulator.workload import Responses, Visits
from rollsim.traces.requests import RequestTrace


class RecordedWorkload:
    """Groups of a recorded trace in its order, over and over.

    The first pass gives every response as it was recorded. Later ones, further visits and laps of the data set, meet
    the same responses again (`reuse`) or draw from those of the group with replacement (`redraw`). One beyond the
    recorded ones of its group is an `extra`: a recorded length of the group, drawn at random and blurred by exp(h z)
    with z standard normal, h = 0.9 s m**(-1/5) (Silverman's rule of thumb, 1986, equation 3.31), s the pooled standard
    deviation of log lengths within groups and m the responses of the group.

    Parameters
    ----------
    trace : RequestTrace
        Requests without a group count as groups of one.
    streams : Streams
    visits : str

    Attributes
    ----------
    name, content_hash : str
        Of the trace.
    notes : tuple of str
        What a user should know.
    longest_prompt_tokens, longest_output_tokens : int
    """

    def __init__(self, trace: RequestTrace, streams: Streams, *, visits: Visits = "redraw") -> None:
        self.name, self.content_hash, self.notes = trace.path, trace.content_hash, trace.notes
        self.streams, self.visits = streams, visits
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
        self.longest_prompt_tokens, self.longest_output_tokens = int(self._prompt_tokens.max()), int(self._tokens.max())
        self._blur = 0.9 * _spread_within(np.log(self._tokens), self._starts, self._sizes) * self._sizes**-0.2

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
        """Responses to prompts, by key; see `LawWorkload.draw`. Rewards are unknown."""
        prompt, sample, visit, attempt = np.broadcast_arrays(prompt, sample, visit, attempt)
        group = prompt % len(self)
        size = self._sizes[group]
        extra = sample >= size
        member = np.where(extra, 0, sample)
        again = extra if self.visits == "reuse" else extra | (visit > 0) | (prompt >= len(self))
        if again.any():
            key = prompt[again], visit[again], sample[again], attempt[again]
            member = member.copy()
            member[again] = self.streams.uniform("replay.member", *key) * size[again]
        tokens = np.array(self._tokens[self._starts[group] + member], float)
        if extra.any():
            key = prompt[extra], visit[extra], sample[extra], attempt[extra]
            tokens[extra] *= np.exp(self._blur[group[extra]] * self.streams.normal("replay.blur", *key))
        unknown = np.full(tokens.shape, np.nan)
        return Responses(
            prompt_tokens=self._prompt_tokens[group],
            output_tokens=np.rint(np.clip(tokens, 1, self.longest_output_tokens)).astype(np.int64),
            truncated=np.zeros(tokens.shape, bool),
            pass_rate=unknown,
            reward=unknown,
            extra=extra,
        )


def _spread_within(values: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> float:
    """Pooled standard deviation within groups that are neighbours; 0 if no group has two."""
    freedom = len(values) - len(sizes)
    if not freedom:
        return 0.0
    means = np.add.reduceat(values, starts) / sizes
    return float(np.sqrt(((values - np.repeat(means, sizes)) ** 2).sum() / freedom))

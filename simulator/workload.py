"""Workloads: for a prompt, visit and sample, how long prompt and response are, and what reward it gets.

A workload is a pure function of its keys and the seed: whoever asks, in whatever order, gets the same answer. Here is
the one that draws from a length law; `recorded_workload` replays a table of rollouts.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollsim.simulator.length_body import Floats
from rollsim.simulator.length_law import LengthLaw
from rollsim.simulator.lengths import Lengths
from rollsim.simulator.pass_rates import PassRates
from rollsim.simulator.profile_parts import Claim
from rollsim.simulator.rng import Streams

Visits = Literal["redraw", "reuse"]


@dataclass(frozen=True)
class Responses:
    """Responses as arrays of one shape, in most cases [groups, samples].

    Attributes
    ----------
    prompt_tokens, output_tokens
        Lengths [tokens], int64, at least 1.
    truncated
        Cut at the cap: the length is right-censored.
    pass_rate
        Chance of success that the prompt has, NaN if unknown.
    reward
        Reward, NaN if unknown.
    extra
        Not recorded but drawn, in a replay; always false for a law.
    """

    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    truncated: NDArray[np.bool_]
    pass_rate: Floats
    reward: Floats
    extra: NDArray[np.bool_]


class Workload(Protocol):
    """Gives responses by key; see `LawWorkload.draw`.

    `name` and `content_hash` say where from, `notes` what a user should know, `claims` what the lengths rest on, and
    the longest lengths what an engine must hold.
    """

    name: str
    content_hash: str
    notes: tuple[str, ...]
    claims: tuple[Claim, ...]
    longest_prompt_tokens: int
    longest_output_tokens: int

    def draw(
        self,
        prompt: ArrayLike,
        sample: ArrayLike,
        *,
        visit: ArrayLike = 0,
        attempt: ArrayLike = 0,
        version: ArrayLike = 0,
    ) -> Responses:
        """Responses to prompts, by key."""
        ...


class LawWorkload:
    """Draws responses from a length law.

    Parameters
    ----------
    law
        The law.
    streams
        Random streams; those used are named ``prompt.*`` and ``response.*``.
    visits
        Whether another visit to a prompt draws new responses or meets those of the first again.
    cap_tokens
        Another cap than the law's.
    """

    def __init__(
        self, law: LengthLaw, streams: Streams, *, visits: Visits = "redraw", cap_tokens: int | None = None
    ) -> None:
        self.lengths = Lengths(law, cap_tokens)
        self.name, self.notes = law.name, tuple[str, ...]()
        self.claims = law.evidence.claims if law.evidence else ()
        self.content_hash = hashlib.sha256(law.model_dump_json().encode()).hexdigest()
        self.longest_prompt_tokens, self.longest_output_tokens = law.prompt.max_tokens, self.lengths.cap_tokens
        self.pass_rates = None if law.pass_rate is None else PassRates(law.pass_rate)
        self.streams = streams
        self.visits = visits

    def draw(
        self,
        prompt: ArrayLike,
        sample: ArrayLike,
        *,
        visit: ArrayLike = 0,
        attempt: ArrayLike = 0,
        version: ArrayLike = 0,
    ) -> Responses:
        """Responses to prompts.

        Parameters
        ----------
        prompt, sample, visit, attempt
            Whole numbers or arrays of them, which broadcast together: which prompt, which of its responses, the how
            manyth time the prompt is used, and the how manyth try of the same response; all from 0.
        version
            Version of the weights that starts each response; it decides how far lengths have drifted.

        Returns
        -------
        Responses
            Arrays of the broadcast shape.
        """
        if self.visits == "reuse":
            visit = np.zeros_like(visit)
        prompt = np.asarray(prompt)
        # Responses to a prompt mostly stand side by side: what depends on the prompt alone is drawn once a run.
        flat = prompt.reshape(-1)
        first = np.flatnonzero(np.r_[True, flat[1:] != flat[:-1]][: flat.size])
        runs = np.diff(first, append=flat.size)
        effect = self.streams.normal("prompt.length", flat[first])

        def of_prompt(values: NDArray) -> NDArray:
            return np.repeat(values, runs).reshape(prompt.shape)

        own = self.streams.normal("response.length", prompt, visit, sample, attempt)
        tokens, truncated = self.lengths.draw(of_prompt(effect), own, version)
        shape = tokens.shape
        if self.pass_rates is None:
            rate = reward = np.full(shape, np.nan)
        else:
            difficulty = self.streams.normal("prompt.difficulty", flat[first])
            rate = of_prompt(self.pass_rates.of_prompt(effect, difficulty))
            luck = self.streams.normal("response.luck", prompt, visit, sample, attempt)
            reward = self.pass_rates.rewards(rate, own, luck, truncated)
        return Responses(
            prompt_tokens=_spread(of_prompt(self._prompt_tokens(flat[first])), shape),
            output_tokens=tokens,
            truncated=truncated,
            pass_rate=_spread(rate, shape),
            reward=reward,
            extra=np.zeros(shape, bool),
        )

    def _prompt_tokens(self, prompt: ArrayLike) -> NDArray[np.int64]:
        law = self.lengths.law.prompt
        natural = law.median_tokens * np.exp(law.sigma * self.streams.normal("prompt.tokens", prompt))
        return np.rint(np.clip(natural, 1, law.max_tokens)).astype(np.int64)


def groups(
    workload: Workload, prompts: ArrayLike, group_size: int, *, visit: ArrayLike = 0, version: ArrayLike = 0
) -> Responses:
    """Whole groups, arrays [prompts, group_size].

    Parameters
    ----------
    workload
        Where from.
    prompts
        Numbers of the prompts, [prompts].
    group_size
        Responses to each.
    visit, version
        One for all, or one a prompt.
    """
    columns = [np.asarray(value)[..., None] for value in (prompts, visit, version)]
    return workload.draw(columns[0], np.arange(group_size), visit=columns[1], version=columns[2])


def _spread(values: ArrayLike, shape: tuple[int, ...]) -> NDArray:
    """Values of prompts for each of their responses."""
    return np.array(np.broadcast_to(values, shape))

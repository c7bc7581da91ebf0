"""Workloads: for a prompt, visit and sample, how long prompt and response are, and what reward it gets.

A workload is a pure function of its keys and the seed: whoever asks, in whatever order, gets the same answer. Here is
the one that draws from a length law; `recorded_workload` replays a table of rollouts.
"""

import hashlib
from dataclasses import dataclass, fields
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from rollsim.simulator.length_body import Floats
from rollsim.simulator.length_law import LengthLaw
from rollsim.simulator.lengths import Lengths
from rollsim.simulator.pass_rates import PassRates
from rollsim.simulator.rng import Streams

Visits = Literal["redraw", "reuse"]
VISITS: tuple[Visits, ...] = ("redraw", "reuse")


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

    @property
    def extra_share(self) -> float:
        """Share of the responses that were drawn in addition to the recorded ones."""
        return float(self.extra.mean()) if self.extra.size else 0.0


class Workload(Protocol):
    """Gives responses by key; see `LawWorkload.draw`.

    `name` and `content_hash` say where from, `notes` what a user should know, the longest lengths what an engine must
    hold.
    """

    name: str
    content_hash: str
    notes: tuple[str, ...]
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
        effect = self.streams.normal("prompt.length", prompt)
        own = self.streams.normal("response.length", prompt, visit, sample, attempt)
        tokens, truncated = self.lengths.draw(effect, own, version)
        shape = tokens.shape
        if self.pass_rates is None:
            rate = reward = np.full(shape, np.nan)
        else:
            rate = self.pass_rates.of_prompt(effect, self.streams.normal("prompt.difficulty", prompt))
            luck = self.streams.normal("response.luck", prompt, visit, sample, attempt)
            reward = self.pass_rates.rewards(rate, own, luck, truncated)
        return Responses(
            prompt_tokens=_spread(self._prompt_tokens(prompt), shape),
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


def request_table(drawn: Responses, prompts: ArrayLike) -> pa.Table:
    """Whole groups as a request trace with everything at t = 0, in the columns that `traces.requests` reads.

    Parameters
    ----------
    drawn
        Arrays [prompts, group_size].
    prompts
        Numbers of the prompts, [prompts].
    """
    prompt = np.asarray(prompts)
    size = drawn.output_tokens.shape[1]
    samples = np.tile(np.arange(size), len(prompt)).astype(str)
    columns = {field.name: getattr(drawn, field.name).reshape(-1) for field in fields(drawn)}
    return pa.table(
        {
            "sample_id": pa.array(np.char.add(np.char.add(np.repeat(prompt, size).astype(str), "."), samples)),
            "group_id": np.repeat(prompt, size),
            "arrival_s": np.zeros(len(prompt) * size),
        }
        | {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    )


def _spread(values: ArrayLike, shape: tuple[int, ...]) -> NDArray:
    """Values of prompts for each of their responses."""
    return np.array(np.broadcast_to(values, shape))

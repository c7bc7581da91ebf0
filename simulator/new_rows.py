"""Records of trajectories that start: what is drawn for them, and for the prompts that will follow."""

from collections.abc import Sequence

import numpy as np

from rollsim.policies.base import Prompt
from rollsim.simulator.reward_latency import RewardLatency
from rollsim.simulator.trajectories import UNKNOWN
from rollsim.simulator.workload import Workload

# Prompts drawn at once when they come one by one in the order of the data set: a draw of few costs as much.
_AHEAD = 128


class NewRows:
    """Draws records; what is drawn does not depend on what was asked before.

    Parameters
    ----------
    workload : Workload
    max_model_len : int
        Tokens of prompt and response that a replica takes; the rest of a response is cut.
    reward_latency : RewardLatency
        From the end of a response to its reward.
    """

    def __init__(self, workload: Workload, max_model_len: int, reward_latency: RewardLatency) -> None:
        self._workload, self._max_model_len, self._reward_latency = workload, max_model_len, reward_latency
        self._next = -1
        self._ahead, self._first, self._key = UNKNOWN[:0], 0, (0, 0, 0)

    def draw(self, chosen: Sequence[Prompt], usual: int, version: int) -> tuple[np.ndarray, np.ndarray]:
        """Records of groups, one group after the other, and the size of each.

        Parameters
        ----------
        chosen : sequence of Prompt
        usual : int
            Responses to a prompt that does not say how many.
        version : int
            Of the weights that start them.
        """
        first, visit, samples = chosen[0].prompt, chosen[0].visit, chosen[0].samples or usual
        n = len(chosen)
        if n < _AHEAD and all(
            prompt.prompt == first + i and prompt.visit == visit and (prompt.samples or usual) == samples
            for i, prompt in enumerate(chosen)
        ):
            follows, self._next = first == self._next, first + n
            if follows or self._has(first, n, (visit, samples, version)):
                return self._cut(first, n, (visit, samples, version)), np.full(n, samples)
        prompts, visits, sizes = np.array([(p.prompt, p.visit, p.samples or usual) for p in chosen]).T
        self._next = int(prompts[-1]) + 1
        return self._rows(prompts, visits, sizes, version), sizes

    def _has(self, first: int, n: int, key: tuple[int, int, int]) -> bool:
        drawn = len(self._ahead) // key[1]
        return key == self._key and self._first <= first and first + n <= self._first + drawn

    def _cut(self, first: int, n: int, key: tuple[int, int, int]) -> np.ndarray:
        visit, samples, version = key
        if not self._has(first, n, key):
            prompts = np.arange(first, first + _AHEAD)
            every = np.full(_AHEAD, visit), np.full(_AHEAD, samples)
            self._ahead, self._first, self._key = self._rows(prompts, *every, version), first, key
        start = (first - self._first) * samples
        return self._ahead[start : start + n * samples]

    def _rows(self, prompts: np.ndarray, visits: np.ndarray, sizes: np.ndarray, version: int) -> np.ndarray:
        rows = np.repeat(UNKNOWN, sizes.sum())
        rows["prompt"], rows["visit"] = np.repeat(prompts, sizes), np.repeat(visits, sizes)
        rows["sample"] = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        drawn = self._workload.draw(rows["prompt"], rows["sample"], visit=rows["visit"], version=version)
        room = self._max_model_len - drawn.prompt_tokens
        rows["prompt_tokens"], rows["target_tokens"] = drawn.prompt_tokens, np.minimum(drawn.output_tokens, room)
        rows["truncated"] = drawn.truncated | (drawn.output_tokens > room)
        rows["reward"], rows["extra"] = drawn.reward, drawn.extra
        rows["reward_s"] = self._reward_latency.draw(rows["prompt"], rows["visit"], rows["sample"])
        return rows

"""Normals by key, drawn for many neighbouring prompts at once and remembered: a loop asks for one group at a time."""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollsim.simulator.rng import Streams

_PROMPTS = 64
_SAMPLES = 64
_SMALL = 1024  # draws from which on asking at once is as fast
_TABLES = 1024


class DrawAhead:
    """The normals of some streams; what they are does not depend on what was asked before.

    Parameters
    ----------
    streams : Streams
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._table = lru_cache(maxsize=_TABLES)(self._draw)

    def normal(
        self, stream: str, prompt: ArrayLike, visit: ArrayLike = 0, sample: ArrayLike = 0, attempt: ArrayLike = 0
    ) -> NDArray[np.float64]:
        """As `Streams.normal`."""
        prompt, visit, sample, attempt = np.broadcast_arrays(prompt, visit, sample, attempt)
        if not 0 < prompt.size < _SMALL or attempt.any() or int(sample.max()) >= _SAMPLES:
            return self._streams.normal(stream, prompt, visit, sample, attempt)
        block, within = prompt // _PROMPTS, prompt % _PROMPTS
        samples = 1 << int(sample.max()).bit_length()
        keys = set(zip(block.ravel().tolist(), visit.ravel().tolist(), strict=True))
        if len(keys) == 1:
            return self._table(stream, *keys.pop(), samples)[within, sample]
        found = np.empty(prompt.shape)
        for key in keys:
            mine = (block == key[0]) & (visit == key[1])
            found[mine] = self._table(stream, *key, samples)[within[mine], sample[mine]]
        return found

    def _draw(self, stream: str, block: int, visit: int, samples: int) -> NDArray[np.float64]:
        """Normals of a block of prompts at one visit, [prompts, samples]."""
        prompts = block * _PROMPTS + np.arange(_PROMPTS)
        return self._streams.normal(stream, prompts[:, None], visit, np.arange(samples))

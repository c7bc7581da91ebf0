"""Named independent streams of uniforms from one seed, addressed by key and never by call order.

Every number is a pure function of (seed, stream name, prompt, visit, sample, attempt, turn): the arms of a comparison
see the same uniforms (common random numbers), whatever they ask for, in what order and in what shape.

The function is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): the
counter holds the key's five numbers, the cipher key a digest of seed and stream name. Different keys of one stream can
therefore never collide. Numbers do not depend on the version of numpy; a test pins them.
"""

import hashlib
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from rollsim.traces.errors import BadInput, Fault

MAX_SEED = 2**63 - 1
LIMITS = {"prompt": 2**32, "visit": 2**16, "sample": 2**32, "attempt": 2**16, "turn": 2**32}

_ROUNDS = 10
_CHUNK = 8192  # numbers that stay in the cache over all rounds
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85


class Streams:
    """The streams of one seed.

    Parameters
    ----------
    seed
        A whole number from 0 to 2**63 - 1; `BadInput` for any other.
    """

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed <= MAX_SEED:
            raise BadInput(Fault("seed", given=seed, allowed=f"a whole number from 0 to {MAX_SEED}"))
        self.seed = int(seed)

    def __repr__(self) -> str:
        return f"Streams({self.seed})"

    def uniform(
        self,
        stream: str,
        prompt: ArrayLike,
        visit: ArrayLike = 0,
        sample: ArrayLike = 0,
        attempt: ArrayLike = 0,
        turn: ArrayLike = 0,
    ) -> NDArray[np.float64]:
        """Return uniforms in the open interval (0, 1), with 52 random bits each.

        Parameters
        ----------
        stream
            Name of the stream: what the number is for.
        prompt, visit, sample, attempt, turn
            Whole numbers or arrays of them, which broadcast together; `LIMITS` holds how far each may count.

        Returns
        -------
        numpy.ndarray
            float64 of the broadcast shape.

        Raises
        ------
        ValueError
            If a key is not whole, negative or beyond its limit.
        """
        keys = {"prompt": prompt, "visit": visit, "sample": sample, "attempt": attempt, "turn": turn}
        checked = [_checked(name, value) for name, value in keys.items()]
        shape = np.broadcast_shapes(*(value.shape for value in checked))
        words = (checked[0], checked[1] | (checked[3] << np.uint64(16)), checked[2], checked[4])
        counter = [np.broadcast_to(word, shape).reshape(-1) for word in words]
        key = _key(self.seed, stream)
        made = np.empty(counter[0].size)
        for start in range(0, made.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            first, second, _, _ = philox4x32([word[part] for word in counter], key)
            made[part] = _open_unit(first, second)
        return made.reshape(shape)

    def normal(
        self,
        stream: str,
        prompt: ArrayLike,
        visit: ArrayLike = 0,
        sample: ArrayLike = 0,
        attempt: ArrayLike = 0,
        turn: ArrayLike = 0,
    ) -> NDArray[np.float64]:
        """Return standard normals: the normal quantiles of the uniforms of the same stream and keys."""
        return ndtri(self.uniform(stream, prompt, visit, sample, attempt, turn))


def philox4x32(counter: list[NDArray[np.uint64]], key: tuple[int, int]) -> tuple[NDArray[np.uint64], ...]:
    """Encrypt counters with Philox4x32-10.

    Parameters
    ----------
    counter
        Four arrays uint64 [n] of 32-bit words, the least significant first.
    key
        Two 32-bit words.

    Returns
    -------
    tuple
        Four arrays uint64 [n] of 32-bit words.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        low, high = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (high >> _32) ^ c1 ^ np.uint64(k0), high & _LOW, (low >> _32) ^ c3 ^ np.uint64(k1), low & _LOW
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return c0, c1, c2, c3


def _open_unit(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Middle of one of 2**52 equal cells of (0, 1): exact in float64, so that neither end can come out."""
    cell = (first << np.uint64(20)) | (second >> np.uint64(12))
    return (cell.astype(np.float64) + 0.5) * 2.0**-52


@lru_cache(maxsize=1024)
def _key(seed: int, stream: str) -> tuple[int, int]:
    digest = hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def _checked(name: str, value: ArrayLike) -> NDArray[np.uint64]:
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name}: whole numbers are needed, given {array.dtype}")
    if array.size and (array.min() < 0 or array.max() >= LIMITS[name]):
        raise ValueError(f"{name}: given {array.min()} to {array.max()}, allowed 0 to {LIMITS[name] - 1}")
    return array.astype(np.uint64)

"""A law beside responses that it was not fitted to, where it matters: the tail, the cap, and the longest of a group."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollsim.simulator.length_law import LengthLaw
from rollsim.simulator.lengths import Lengths

_DRAWS = 400
# An interval that is wider than this share of the number, either way, tells too little.
TOO_WIDE = 0.2


def goodness(law: LengthLaw, prompt: NDArray, tokens: NDArray, cut: NDArray, size: int) -> list[dict[str, Any]]:
    """Numbers of the law beside those of responses, with 90 % intervals of the latter by drawing prompts anew.

    Efron's bootstrap (1979), by prompt. ``too_few`` says that the interval is wider than `TOO_WIDE` either way.

    Parameters
    ----------
    law
    prompt, tokens, cut : array [responses]
        Number of its prompt from 0, length, and whether it was cut.
    size
        The usual number of responses to a prompt.
    """
    prompts = int(prompt.max()) + 1
    lengths, rng = Lengths(law), np.random.default_rng(0)
    by_prompt = [np.flatnonzero(prompt == i) for i in range(prompts)]
    draws = [np.concatenate([by_prompt[i] for i in rng.integers(0, prompts, prompts)]) for _ in range(_DRAWS)]
    longest = np.array([tokens[rows].max() for rows in by_prompt if len(rows) == size], dtype=float)
    found = []
    for share in (0.5, 0.9, 0.99):
        of_draws = [np.quantile(tokens[draw], share) for draw in draws]
        found.append(_row(f"P{100 * share:g}", float(lengths.quantile(share)), np.quantile(tokens, share), of_draws))
    found.append(_row("mean", lengths.mean(), tokens.mean(), [tokens[draw].mean() for draw in draws]))
    if cut.any() or law.runaway_share:
        of_draws = [cut[draw].mean() for draw in draws]
        found.append(_row("share cut", lengths.cap_share(), cut.mean(), of_draws))
    if size > 1 and len(longest) > 1:
        of_draws = [rng.choice(longest, len(longest)).mean() for _ in range(_DRAWS)]
        name = f"longest of {size}"
        found.append(_row(name, lengths.expected_maximum(1, size), longest.mean(), of_draws))
    return found


def _row(name: str, law: float, seen: float, draws: list[Any]) -> dict[str, Any]:
    low, high = (float(value) for value in np.quantile(draws, (0.05, 0.95)))
    wide = max(high - seen, seen - low) > TOO_WIDE * seen if seen else True
    return {
        "what": name,
        "law": float(law),
        "seen": float(seen),
        "low": low,
        "high": high,
        "error": float(law / seen - 1) if seen else None,
        "inside": bool(low <= law <= high),
        "too_few": bool(wide),
    }

"""What a law says about groups, by drawing many with fixed keys: the numbers that sources publish about theirs."""

import numpy as np
from numpy.typing import NDArray

from rollsim.simulator.length_law import LengthLaw
from rollsim.simulator.rng import Streams
from rollsim.simulator.workload import LawWorkload, groups

GROUPS = 20_000
_SEED = 20_260_301


def drawn_statistics(law: LengthLaw, group_size: int) -> dict[str, float]:
    """Statistics of `GROUPS` groups drawn from a law; the same law gives the same numbers."""
    drawn = groups(LawWorkload(law, Streams(_SEED)), np.arange(GROUPS), group_size)
    return group_statistics(drawn.output_tokens, drawn.reward if law.pass_rate else None)


def group_statistics(tokens: NDArray, reward: NDArray | None) -> dict[str, float]:
    """Statistics of groups by the names of `length_source.Statistic`.

    Parameters
    ----------
    tokens
        Lengths, [groups, samples].
    reward
        1 for right and 0 for wrong, of the same shape; None if unknown.
    """
    mean = tokens.mean(axis=1)
    deviation = tokens.std(axis=1, ddof=1) if tokens.shape[1] > 1 else np.full(len(tokens), np.nan)
    found = {
        "std_of_group_means": mean.std(),
        "std_in_group": deviation.mean(),
        "cv_in_group": (deviation / mean).mean(),
        "longest_over_group_mean": np.median(tokens.max(axis=1) / mean),
    }
    if reward is not None:
        rate = reward.mean(axis=1)
        found |= {
            "mean_pass_rate": rate.mean(),
            "std_pass_rate": rate.std(),
            "all_wrong": (rate == 0).mean(),
            "all_right": (rate == 1).mean(),
            "pass_rate_length_correlation": np.corrcoef(rate, mean)[0, 1],
            "median_right": np.median(tokens[reward == 1]),
            "median_wrong": np.median(tokens[reward == 0]),
        }
    return {name: float(value) for name, value in found.items()}

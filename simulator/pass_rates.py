"""Pass rates of prompts and rewards of responses, tied to their lengths by a Gaussian copula."""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtr

from rollsim.simulator.length_body import SCORE_END, Floats
from rollsim.simulator.length_law import PassRate

_TABLE_POINTS = 4097


class PassRates:
    """Pass rates and binary rewards under a law.

    Parameters
    ----------
    law
        The law's part about pass rates.
    """

    def __init__(self, law: PassRate) -> None:
        self.law = law
        self._score = np.linspace(-SCORE_END, SCORE_END, _TABLE_POINTS)
        middle = 1 - law.never_share - law.always_share
        self._rate = betaincinv(law.a, law.b, np.clip((ndtr(self._score) - law.never_share) / middle, 0, 1))

    def of_prompt(self, prompt_effect: ArrayLike, difficulty: ArrayLike) -> Floats:
        """Pass rate of prompts.

        Parameters
        ----------
        prompt_effect
            The prompt's effect on lengths, a standard normal.
        difficulty
            What else decides, a standard normal independent of it.
        """
        return np.interp(_mixed(self.law.prompt_correlation, prompt_effect, difficulty), self._score, self._rate)

    def rewards(self, pass_rate: ArrayLike, sample_effect: ArrayLike, luck: ArrayLike, truncated: ArrayLike) -> Floats:
        """Reward of responses, 1 for right and 0 for wrong.

        Parameters
        ----------
        pass_rate
            Of the response's prompt: the chance of a 1, whatever the correlations.
        sample_effect
            The response's own effect on its length, a standard normal.
        luck
            What else decides, a standard normal independent of it.
        truncated
            Whether it was cut at the cap; if the law says so, it then is wrong.
        """
        right = ndtr(_mixed(-self.law.sample_correlation, sample_effect, luck)) < pass_rate
        if self.law.truncated_fails:
            right &= ~np.asarray(truncated, bool)
        return right.astype(np.float64)


def _mixed(correlation: float, known: ArrayLike, other: ArrayLike) -> Floats:
    return correlation * np.asarray(known) + math.sqrt(1 - correlation**2) * np.asarray(other)

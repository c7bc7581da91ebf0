"""What policies answered, refused where they were not offered it (INV-10)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rollsim.policies.base import Move, Running, Selected, Speculation, Unit
from rollsim.simulator.replica import unfit
from rollsim.simulator.setup import Setup
from rollsim.simulator.world_failed import WorldFailed


def count(point: str, answer: Any, least: int, most: float, of: str) -> int:
    """A whole number of `of` in a range; from admission 0 and less mean none."""
    if type(answer) is int and least <= answer <= most:
        return answer
    if not isinstance(answer, (int, np.integer)) or isinstance(answer, bool):
        raise WorldFailed(f"INV-10: {point} answered {answer!r}, not a number of {of}")
    if not least <= answer <= most:
        raise WorldFailed(f"INV-10: {point} asks for {answer} {of}, {least} to {most} are allowed")
    return int(answer)


def word(point: str, answer: Any, allowed: Sequence[Any]) -> Any:
    """One of the words that a point knows."""
    if answer not in allowed:
        raise WorldFailed(f"INV-10: {point} answered {answer!r}, it may be {', '.join(map(str, allowed))}")
    return answer


def one_each(point: str, answer: Any, wanted: int, of: str) -> np.ndarray:
    """An array with one entry for each of so many things."""
    array = np.asarray(answer)
    if array.shape != (wanted,):
        raise WorldFailed(f"INV-10: {point} answered {array.size} {of} for {wanted}")
    return array


def routes(answer: Any, wanted: int, replicas: int) -> np.ndarray:
    """Replica of each of so many trajectories."""
    array = one_each("routing", answer, wanted, "replicas")
    if array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= replicas:
        raise WorldFailed(f"INV-10: routing named a replica that does not exist, or none; there are {replicas}")
    return array


def among(point: str, answer: Sequence[int], running: Running) -> np.ndarray:
    """Trajectories among those that run, each at most once."""
    numbers = np.array(list(answer), np.int64)
    if len(np.unique(numbers)) < len(numbers) or not np.isin(numbers, running.trajectory).all():
        raise WorldFailed(f"INV-10: {point} named a trajectory that it was not offered, or one twice")
    return numbers


def moves(answer: Sequence[Move], running: Running, replicas: int) -> tuple[np.ndarray, np.ndarray]:
    """Trajectories that change their replica, and where they go."""
    moving = among("migration", [move.trajectory for move in answer], running)
    where = np.array([move.replica for move in answer], np.int64)
    if len(where) and (where.min() < 0 or where.max() >= replicas):
        raise WorldFailed(f"INV-10: migration named a replica that does not exist; there are {replicas}")
    return moving, where


def speculation(answer: Speculation | None, setup: Setup) -> None:
    """Drafts with which everything still fits a replica, and tokens that so many drafts can make."""
    if answer is None:
        return
    count("decoding", answer.drafts, 1, setup.limits.max_num_batched_tokens - 1, "drafts")
    if not 1 <= answer.tokens_per_step <= answer.drafts + 1:
        most = f"with {answer.drafts} drafts it makes 1 to {answer.drafts + 1}"
        raise WorldFailed(f"INV-10: decoding answered {answer.tokens_per_step} tokens a step; {most}")
    longest = setup.workload.longest_prompt_tokens, setup.workload.longest_output_tokens
    if reason := unfit(setup.limits, *longest, answer.drafts):
        raise WorldFailed(f"INV-10: decoding answered {answer.drafts} drafts, with which the longest response {reason}")


def selected(answer: Selected, offered: Sequence[Unit]) -> Selected:
    """Groups among those offered, each at most once."""
    named = [unit.group for unit in (*answer.chosen, *answer.dropped)]
    if len(set(named)) < len(named):
        raise WorldFailed("INV-10: selection named a group twice")
    if not {unit.group for unit in offered}.issuperset(named):
        raise WorldFailed("INV-10: selection named groups that it was not offered")
    return answer

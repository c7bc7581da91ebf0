"""Compiles what a kind of work calls of the kernel, or loads it, before the work begins and its clock runs."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from rollsim.simulator.costs import StepCost
from rollsim.simulator.kernel import ENTRY_POINTS, calls, decode, loop, state, touches
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.trajectories import TRAJECTORY

_LEAST = EngineLimits(max_num_seqs=1, max_num_batched_tokens=1, block_size=1, num_blocks=1, max_model_len=2)


@cache
def warm_up(work: str) -> None:
    """Make the kernel ready for a kind of work of `kernel.ENTRY_POINTS`; nothing to do without the compiler.

    Each entry point is given the types that its callers give it, so that it has one signature and is compiled once.
    """
    for name in ENTRY_POINTS[work]:
        function, arguments = _CALLS[name]()
        if hasattr(function, "compile"):
            function.compile(tuple(map(function.typeof_pyval, arguments)))


def _state() -> state.State:
    return state.allocate(_LEAST, state.tables(StepCost.affine(1, 1)), 1)


def _numbers() -> np.ndarray:
    return np.zeros(1, np.int64)


def _rows() -> np.ndarray:
    return state.readable(np.empty(1, TRAJECTORY))


def _swaps() -> tuple[np.ndarray, np.ndarray, int]:
    return np.zeros(1), _numbers(), 1


_CALLS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "loop.feed": lambda: (loop.feed, (_state(), np.zeros(1), 0)),
    "loop.run": lambda: (loop.run, (_state(), 0.0, 0, 0)),
    "touches.enqueue": lambda: (touches.enqueue, (_state(), 0)),
    "touches.take_out": lambda: (touches.take_out, (_state(), 0)),
    "touches.preempt_all": lambda: (touches.preempt_all, (_state(),)),
    "touches.set_rate": lambda: (touches.set_rate, (_state(), 0, 0, 0)),
    "touches.set_version": lambda: (touches.set_version, (_state(), 0)),
    "decode.output_tokens": lambda: (decode.output_tokens, (_state(), 0)),
    "decode.computed_tokens": lambda: (decode.computed_tokens, (_state(), 0)),
    "calls.take_in": lambda: (calls.take_in, (_state(), _rows(), _numbers(), _numbers(), 0)),
    "calls.advance": lambda: (calls.advance, (_state(), 0.0, 0.0, _rows(), _numbers(), 0, *_swaps())),
    "calls.record": lambda: (calls.record, (_state(), 0.0, _rows(), _numbers(), 0, *_swaps())),
}

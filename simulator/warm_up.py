"""Compiles what a kind of work calls of the kernel, or loads it, before the work begins and its clock runs."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from rollsim.simulator.costs import StepCost
from rollsim.simulator.kernel import (
    ENTRY_POINTS,
    decode,
    fleet,
    fleet_looks,
    fleet_touches,
    groups,
    loop,
    state,
    touches,
)
from rollsim.simulator.kernel.groups import FINAL, GROUP
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


def _flags() -> np.ndarray:
    return np.zeros(1, bool)


def _rows() -> np.ndarray:
    return state.readable(np.empty(1, TRAJECTORY))


def _fleets() -> tuple[fleet.Fleet, state.State]:
    return fleet.idle(state.stacked(_state(), 1)), state.stacked(_state(), 1)


def _groups() -> tuple[np.ndarray, np.ndarray]:
    return state.readable(np.empty(1, GROUP)), _rows()


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
    "fleet_touches.touch": lambda: (fleet_touches.touch, (*_fleets(), 0.0, 0, 0)),
    "fleet_touches.start": lambda: (fleet_touches.start, (*_fleets(), _rows(), 0.0, _numbers())),
    "fleet_touches.take_out": lambda: (fleet_touches.take_out, (*_fleets(), _rows(), 0.0, _numbers(), 0, _flags())),
    "fleet_touches.progress": lambda: (
        fleet_touches.progress,
        (*_fleets(), _rows(), 0.0, _numbers(), 0, _flags(), _numbers(), _numbers()),
    ),
    "fleet_touches.set_rates": lambda: (
        fleet_touches.set_rates,
        (*_fleets(), 0.0, 0, _numbers(), _numbers(), _numbers()),
    ),
    "fleet_touches.pause": lambda: (fleet_touches.pause, (*_fleets(), 0.0, 0)),
    "fleet_touches.swap": lambda: (fleet_touches.swap, (*_fleets(), 0.0, 0, 0, 0, False, False)),
    "fleet_looks.foresee": lambda: (fleet_looks.foresee, (*_fleets(), _rows(), 0)),
    "fleet_looks.last_end_s": lambda: (fleet_looks.last_end_s, _fleets()[:1]),
    "fleet_looks.collect_foreseen": lambda: (fleet_looks.collect_foreseen, (_fleets()[0], _rows(), 0.0)),
    "fleet_looks.collect": lambda: (fleet_looks.collect, (_fleets()[0], _rows(), 0.0)),
    "fleet_looks.next_ends": lambda: (fleet_looks.next_ends, (_fleets()[0], _rows(), 0.0)),
    "groups.begin": lambda: (groups.begin, (*_groups(), 0, 0, _numbers(), False, 0.0)),
    "groups.count_off": lambda: (groups.count_off, (*_groups(), _numbers(), _numbers())),
    "groups.rewarded_s": lambda: (groups.rewarded_s, (*_groups(), _numbers(), np.zeros(1))),
    "groups.foreseen_s": lambda: (groups.foreseen_s, (*_groups(), 0, np.zeros(1))),
    "groups.finals": lambda: (groups.finals, (*_groups(), _numbers(), state.readable(np.empty(1, FINAL)))),
    "groups.oldest_under_way": lambda: (groups.oldest_under_way, (_groups()[0], _numbers(), 0)),
}

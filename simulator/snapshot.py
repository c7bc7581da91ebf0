"""What a step can change in a replica, copied as sparingly as possible, to roll back a replica that ran ahead.

Requests before the *window* have ended, hold no cached block and are no parent of a live one: nothing changes them any
more, so a snapshot copies the window alone.
"""

from typing import NamedTuple

import numpy as np

from rollsim.simulator.kernel.state import FINISHED, NONE, State

# Scratch and heap of a rank, by position; the rest of a slot belongs to a request.
_BY_POSITION = ("heap", "scheduled", "tokens", "drafts", "computed", "had_output", "preempted", "pending")


class Snapshot(NamedTuple):
    """Copies of the changeable parts; requests and slots from `first` on."""

    first: int
    engine: np.ndarray
    rank: np.ndarray
    request: np.ndarray
    positions: np.ndarray
    slot: np.ndarray
    segment: np.ndarray
    hold: np.ndarray
    residues: np.ndarray
    sums: np.ndarray
    gauge: np.ndarray


def window(s: State, first: int, n: int) -> int:
    """First request, from `first` on, that a step may still change; n if there is none."""
    request = s.request[first:n]
    live = request["state"] < FINISHED
    if live.any():
        parents = request["parent"][live]
        parents = parents[parents != NONE]
        limit = min(int(live.argmax()), int(parents.min()) - first if len(parents) else n)
    else:
        limit = n - first
    quiet = (s.slot["first_segment"][:, first : first + limit] == NONE).all(axis=0)
    quiet &= s.request["run_first"][first : first + limit] == NONE
    return first + (int(quiet.argmin()) if not quiet.all() else limit)


def take(s: State, first: int, n: int) -> Snapshot:
    """Copy the state of a replica with n requests, none before `first` changeable."""
    e = s.engine[0]
    used = min(n, 2 * int(e["max_num_seqs"]))
    return Snapshot(
        first,
        s.engine.copy(),
        s.rank.copy(),
        s.request[first:n].copy(),
        s.slot[:, :used].copy(),
        s.slot[:, first:n].copy(),
        s.segment[: e["seg_top"]].copy(),
        s.hold[: e["hold_top"]].copy(),
        s.residues.copy(),
        s.sums.copy(),
        s.gauge[: e["gauge_n"]].copy(),
    )


def put(s: State, saved: Snapshot) -> None:
    """Bring a replica back to a snapshot of its own; requests are as many as then."""
    s.engine[:], s.rank[:] = saved.engine, saved.rank
    s.request[saved.first : saved.first + len(saved.request)] = saved.request
    positions = s.slot[:, : saved.positions.shape[1]]
    for name in _BY_POSITION:
        positions[name] = saved.positions[name]
    slot = s.slot[:, saved.first : saved.first + saved.slot.shape[1]]
    slot["first_segment"], slot["last_segment"] = saved.slot["first_segment"], saved.slot["last_segment"]
    s.segment[: len(saved.segment)] = saved.segment
    s.hold[: len(saved.hold)] = saved.hold
    s.residues[:], s.sums[:] = saved.residues, saved.sums
    s.gauge[: len(saved.gauge)] = saved.gauge

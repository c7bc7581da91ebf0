"""The replicas of a pool as arrays: many states, and what a pool knows of each."""

from typing import NamedTuple

import numpy as np

from rollsim.simulator.kernel.jit import inline
from rollsim.simulator.kernel.state import FP, State, fresh, grow, lengthen_spans, readable

# A replica: its requests and swaps of weights in use, how many ends were recorded, and what it was last seen to do.
REPLICA = np.dtype(
    [
        ("next_s", "f8"),  # when its next end comes, or a time before which none does
        ("known", "i8"),  # one does come then
        ("foreseen", "i8"),  # it ran until nothing was left
        ("saved", "i8"),  # there is a snapshot to come back to
        ("window", "i8"),  # requests before it change no more
        ("n", "i8"),
        ("recorded", "i8"),
        ("swaps", "i8"),
        ("version", "i8"),
        ("rate", "i8"),  # tokens / FP that a trajectory makes in a decode step
        ("drafts", "i8"),
    ],
    align=True,
)
# An interval without steps; `pulls` where weights were pulled meanwhile.
IDLE = np.dtype([("t0_s", "f8"), ("t1_s", "f8"), ("replica", "i8"), ("pulls", "i8")], align=True)


class Fleet(NamedTuple):
    """R replicas of one kind; arrays of `state` have R in front, but for what all share."""

    state: State
    replica: np.ndarray  # (R,) REPLICA
    loads: np.ndarray  # (R,) int64: unfinished trajectories, as far as recorded
    owner: np.ndarray  # (R, N) int64: the trajectory of each request
    swap_s: np.ndarray  # (R, any)
    swap_version: np.ndarray  # (R, any) int64
    ended: np.ndarray  # (all under way,) int64: trajectories whose end was recorded
    idle: np.ndarray  # (any,) IDLE
    used: np.ndarray  # (2,) int64: rows of `ended` and of `idle`
    fresh: np.ndarray  # (1,) REQUEST


@inline
def at(state, i):
    """State of replica i."""
    return State(
        state.engine[i],
        state.rank[i],
        state.request[i],
        state.slot[i],
        state.segment[i],
        state.hold[i],
        state.hit,
        state.residues[i],
        state.sums[i],
        state.gauge[i],
        state.span[i],
        state.dense,
        state.kv_read_s,
        state.context,
        state.lines,
    )


def idle(state: State) -> Fleet:
    """Replicas that begin as `state`, made by `state.stacked`, and have nothing to do."""
    replicas, requests = state.request.shape
    replica = np.zeros(replicas, REPLICA)
    replica["next_s"], replica["swaps"], replica["rate"] = np.inf, 1, FP
    return Fleet(
        state=state,
        replica=readable(replica),
        loads=np.zeros(replicas, np.int64),
        owner=np.empty((replicas, requests), np.int64),
        swap_s=np.full((replicas, 8), -np.inf),
        swap_version=np.zeros((replicas, 8), np.int64),
        ended=np.empty(requests, np.int64),
        idle=readable(np.empty(64, IDLE)),
        used=np.zeros(2, np.int64),
        fresh=readable(fresh(1)),
    )


def with_more_requests(f: Fleet, requests: int) -> Fleet:
    """The same replicas with room for at least so many requests each."""
    more = max(requests, 2 * f.owner.shape[1]) - f.owner.shape[1]
    owner = np.concatenate([f.owner, np.empty((len(f.owner), more), np.int64)], axis=1)
    return f._replace(state=grow(f.state, owner.shape[1]), owner=owner)


def with_longer_logs(f: Fleet) -> Fleet:
    """The same replicas with twice the room for swaps, idle intervals and spans."""
    return f._replace(
        state=lengthen_spans(f.state),
        swap_s=np.concatenate([f.swap_s, f.swap_s], axis=1),
        swap_version=np.concatenate([f.swap_version, f.swap_version], axis=1),
        idle=readable(np.concatenate([f.idle, f.idle])),
    )

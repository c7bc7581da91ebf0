"""The fourteen decision points: what each is asked, what it sees and what it answers.

A policy is a frozen dataclass whose fields are its settings. It reads a `View`, returns a plain value and keeps
nothing. There are two ways to be asked and no third: the fixed moment of a point (a hook), and a `Subscription`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Subscription:
    """When a policy wants to be asked besides its fixed moments.

    Attributes
    ----------
    finishes : int
        After every so many finished trajectories; 0 is never.
    groups : int
        After every so many groups whose last reward is known; 0 is never.
    every_s : float
        At every multiple of so many seconds; 0 is never.
    """

    finishes: int = 0
    groups: int = 0
    every_s: float = 0.0


NEVER = Subscription()
EVERY_FINISH = Subscription(finishes=1)
EVERY_GROUP = Subscription(groups=1)


class View(Protocol):
    """What every policy may read; nothing in it can be changed.

    Attributes
    ----------
    now_s : float
        Time [s].
    version, updates : int
        Published versions *v* and optimizer updates *u* so far.
    steps : int
        Train steps that have ended and published.
    groups_per_step, samples_per_group : int
        Size of a train batch.
    versions_per_step, groups_per_version : int
        Versions that a train step publishes, and groups that it takes while one of them is the newest: the first takes
        all, unless they stream into the trainer.
    groups_started, groups_in_flight, groups_buffered, groups_consumed, groups_dropped : int
        Started ones are in flight until their last reward is known, then buffered until consumed or dropped.
    groups_carried : int
        Of those in flight, the ones that a closed round interrupted and that wait to be resumed.
    oldest_under_way : int
        Number of the oldest group in flight; if there is none, of the next to start.
    groups_missing : int
        Groups that the train step under way, or the next one, still lacks.
    trajectories_in_flight : int
        Those that still generate or wait for a replica.
    replica_loads : array of int [replicas]
        Unfinished trajectories on each replica.
    replica_versions : sequence of int
        Version of the weights on each replica.
    total_gpus : int
        GPUs of the cluster.
    """

    @property
    def now_s(self) -> float: ...
    @property
    def version(self) -> int: ...
    @property
    def updates(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def groups_per_step(self) -> int: ...
    @property
    def samples_per_group(self) -> int: ...
    @property
    def versions_per_step(self) -> int: ...
    @property
    def groups_per_version(self) -> int: ...
    @property
    def groups_started(self) -> int: ...
    @property
    def groups_in_flight(self) -> int: ...
    @property
    def groups_buffered(self) -> int: ...
    @property
    def groups_consumed(self) -> int: ...
    @property
    def groups_dropped(self) -> int: ...
    @property
    def groups_carried(self) -> int: ...
    @property
    def groups_missing(self) -> int: ...
    @property
    def oldest_under_way(self) -> int: ...
    @property
    def trajectories_in_flight(self) -> int: ...
    @property
    def replica_loads(self) -> NDArray[np.int64]: ...
    @property
    def replica_versions(self) -> Sequence[int]: ...
    @property
    def total_gpus(self) -> int: ...


class Unit(NamedTuple):
    """A finished group.

    Its number in the order of starts, oldest version in it, when its last reward was known [s], mean and spread
    (largest less smallest) of its rewards (NaN if unknown), and its tokens, prompts included.
    """

    group: int
    oldest_version: int
    final_s: float
    reward_mean: float
    reward_spread: float
    tokens: int


class Running(NamedTuple):
    """Trajectories on the replicas, as arrays of one length.

    Number, group, tokens so far, oldest version in it (that of the replica before its first token), and replica.
    """

    trajectory: NDArray[np.int64]
    group: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    oldest_version: NDArray[np.int64]
    replica: NDArray[np.int64]


class Waiting(NamedTuple):
    """Trajectories that are to be queued together, as arrays of one length: groups and tokens that they have so far."""

    group: NDArray[np.int64]
    output_tokens: NDArray[np.int64]


class Prompt(NamedTuple):
    """A prompt to start: its number in the data set, how many earlier visits it had, and responses (0: as usual)."""

    prompt: int
    visit: int
    samples: int = 0


class Selected(NamedTuple):
    """Groups to train now, and groups that no train step will use."""

    chosen: Sequence[Unit]
    dropped: Sequence[Unit]


class SyncPlan(NamedTuple):
    """How new weights reach the rollout pool.

    "drain" lets running trajectories end first, with nothing new started; "interrupt" stops the replicas at their next
    step boundary; "relay" leaves the weights with relays, from which each replica pulls them when it is empty.
    `keep_kv` says whether KV of the old weights stays valid.
    """

    how: Literal["drain", "interrupt", "relay"]
    keep_kv: bool


class Shares(NamedTuple):
    """GPUs for each role; `shared` ones serve both, one after the other."""

    rollout_gpus: int
    train_gpus: int
    shared: bool


class Move(NamedTuple):
    """A trajectory that changes its replica, without its KV."""

    trajectory: int
    replica: int


class Speculation(NamedTuple):
    """Drafts verified in each decode step, and tokens that a step makes in the mean, 1 to drafts + 1."""

    drafts: int
    tokens_per_step: float


class Policy(Protocol):
    """What policies of all points have in common."""

    @property
    def subscription(self) -> Subscription: ...


class Watcher(Policy, Protocol):
    """Only looks; a run with it is the same as without."""

    def look(self, view: View) -> None: ...


class Prompts(Policy, Protocol):
    """Which prompts to start; asked when admission lets groups start."""

    def choose(self, view: View, groups: int) -> Sequence[Prompt]: ...


class Admission(Policy, Protocol):
    """How many groups may start now.

    Asked at the start, at a new version, when the trainer took or dropped groups, when the last group under way is
    final, and when a subscription wakes.
    """

    def may_start(self, view: View) -> int: ...


class Ordering(Policy, Protocol):
    """Place in the queue of each trajectory that is to be queued, smallest first; equal ones stay as they are."""

    def keys(self, view: View, waiting: Waiting) -> NDArray[np.float64]: ...


class Routing(Policy, Protocol):
    """Replica of each of `count` trajectories that start together, groups in order; None asks the next policy."""

    def route(self, view: View, count: int) -> Sequence[int | None]: ...


class Migration(Policy, Protocol):
    """What moves where; asked when a subscription of any policy wakes."""

    def moves(self, view: View, running: Running) -> Sequence[Move]: ...


class RoundEnd(Policy, Protocol):
    """Whether the round of generation closes now, and what becomes of the unfinished; None lets it go on.

    "drop" discards their groups, "carry" interrupts them to be resumed from their tokens, "keep" leaves them on their
    replicas, stopped until the next weights.
    """

    def close(self, view: View) -> Literal["keep", "drop", "carry"] | None: ...


class EarlyStop(Policy, Protocol):
    """Which of the running trajectories stop, by number; asked when a subscription of any policy wakes."""

    def stop(self, view: View, running: Running) -> Sequence[int]: ...


class Readiness(Policy, Protocol):
    """How many finished groups the trainer takes at once, at most `view.groups_missing`; it waits for them."""

    def groups(self, view: View) -> int: ...


class Selection(Policy, Protocol):
    """Filter and order of the finished groups, oldest end first; asked before a train step."""

    def select(self, view: View, units: Sequence[Unit]) -> Selected: ...


class WeightSync(Policy, Protocol):
    """How new weights reach the replicas; asked when there are some."""

    def plan(self, view: View) -> SyncPlan: ...


class Allocation(Policy, Protocol):
    """GPUs of each role; asked at the start."""

    def shares(self, view: View) -> Shares: ...


class Decoding(Policy, Protocol):
    """Plain or speculative decoding of a replica with so many unfinished trajectories; None is plain.

    Asked when trajectories are queued on it, and when a subscription of any policy wakes.
    """

    def speculate(self, view: View, batch: int) -> Speculation | None: ...


class Bubble(Policy, Protocol):
    """Who takes a lease that has nothing to do; None leaves it idle.

    Asked when the trainer begins to wait, and when nothing generates any more; role is "train" or "rollout".
    """

    def taker(self, view: View, role: str) -> str | None: ...


class ToolWait(Policy, Protocol):
    """What becomes of the KV of a trajectory that waits for a tool; asked when it leaves for one. None does yet."""

    def kv(self, view: View, leaving: Running) -> Literal["hold", "offload", "drop"]: ...


POINTS: Mapping[str, type] = {
    "prompts": Prompts, "admission": Admission, "ordering": Ordering, "routing": Routing, "migration": Migration,
    "round_end": RoundEnd, "early_stop": EarlyStop, "readiness": Readiness, "selection": Selection,
    "weight_sync": WeightSync, "allocation": Allocation, "decoding": Decoding, "bubble": Bubble, "tool_wait": ToolWait,
}  # fmt: skip

"""The loop once more, in plain whole seconds: an oracle for worlds in which every engine step and phase takes some.

It shares no code with the world but the routing and admission rules it is told. Each second, every trajectory on a
replica that is not stopped gets one token; finishes at a time come before what the trainer does at that time.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

from tests.simulator.world.small import PULL_S, PUSH_S, SWITCH_S, SYNC_S, TRAIN_S

UNTIL_S = 3_000


@dataclass
class Member:
    """A trajectory; -1 is not known."""

    group: int
    length: int
    submit_s: int
    got: int = 0
    attempts: int = 0
    replica: int = -1
    placed: bool = False
    start_s: int = -1
    end_s: int = -1
    version_start: int = -1
    version_end: int = -1
    version_trained: int = -1
    step_trained: int = -1
    fate: str = "undecided"


@dataclass
class Mode:
    """Settings of the policies; `admission` says how many groups may start in a `Seconds`."""

    admission: Callable[["Seconds"], int]
    shared: bool = False
    each_finish: bool = False
    least_load: bool = True
    unfinished: str | None = None
    micro_groups: int = 0
    in_order: bool = False
    drop_above: int | None = None
    how: str = "drain"
    steps: int = 1
    groups: int = 1
    samples: int = 1
    mini_batches: int = 1
    epochs: int = 1
    publish_each: bool = False
    reward_s: int = 0


@dataclass
class Seconds:
    """A run of one mode on two replicas; `lengths` by prompt and sample, over and over."""

    mode: Mode
    lengths: list[list[int]]
    now: int = 0
    version: int = 0
    steps_done: int = 0
    missing: int = 0
    hold: bool = False
    stopped: bool = False
    members: list[list[Member]] = field(default_factory=list)
    buffer: list[int] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    dropped: int = 0
    carried: list[Member] = field(default_factory=list)
    versions: list[int] = field(default_factory=lambda: [0, 0])
    pulls_until: list[int] = field(default_factory=lambda: [0, 0])
    steps: list[tuple[int, int, int, int]] = field(default_factory=list)
    waits: str = ""

    @property
    def running(self) -> list[Member]:
        return [m for group in self.members for m in group if m.placed]

    def loads(self) -> list[int]:
        return [sum(m.replica == i for m in self.running) for i in (0, 1)]

    def final_s(self, group: int) -> int | None:
        """When its last reward is known, if it has ended."""
        ends = [m.end_s for m in self.members[group]]
        return None if min(ends) < 0 else max(ends) + self.mode.reward_s

    def under_way(self) -> list[int]:
        return [g for g in range(len(self.members)) if g not in self.gone and g not in self.buffer]

    def run(self) -> "Seconds":
        trainer = self.train()
        wait = next(trainer)
        while self.now < UNTIL_S:
            for m in [m for m in self.running if not self.stopped and self.pulls_until[m.replica] < self.now]:
                m.got += 1
                m.start_s = self.now - 1 if m.start_s < 0 else m.start_s
                if m.version_start < 0:
                    m.version_start = self.versions[m.replica]
                if m.got == m.length:
                    m.placed, m.end_s, m.version_end = False, self.now, self.versions[m.replica]
            self.heard()
            try:
                while (answer := wait(self)) is not None:
                    wait = trainer.send(answer)
            except StopIteration:
                return self
            self.now += 1
        raise AssertionError(f"still waits for {self.waits}")

    def heard(self) -> None:
        """What ended by now, and what policies make of it."""
        ended = any(m.end_s == self.now for group in self.members for m in group)
        under_way = self.under_way()
        final = sorted((s, g) for g in under_way if (s := self.final_s(g)) is not None and s <= self.now)
        self.buffer += [g for _, g in final]
        if not (
            (self.mode.each_finish and ended) or (final and (self.mode.unfinished or len(final) == len(under_way)))
        ):
            return
        self.pull()
        self.end_round()
        self.admit()

    def begin_round(self) -> None:
        self.hold = False
        self.end_round()
        self.admit()

    def end_round(self) -> None:
        if self.mode.unfinished and not self.hold:
            self.sift()
            if len(self.buffer) >= self.missing > 0:
                self.close()

    def close(self) -> None:
        self.hold = True
        if self.mode.unfinished == "keep":
            self.stopped = True
            return
        for m in self.running:
            m.placed, m.version_end = False, self.versions[m.replica]
            if self.mode.unfinished == "carry":
                m.attempts += 1
                self.carried.append(m)
            else:
                m.end_s = self.now
                self.discard([m.group])

    def discard(self, groups: list[int]) -> None:
        for g in set(groups) - self.gone:
            self.gone.add(g)
            self.dropped += 1
            for m in self.members[g]:
                m.fate = "discarded"

    def pull(self) -> None:
        for i, load in enumerate(self.loads()):
            if self.mode.how == "relay" and not load and self.versions[i] < self.version:
                self.versions[i], self.pulls_until[i] = self.version, self.now + int(PULL_S)

    def admit(self) -> None:
        if self.hold:
            return
        new, self.carried = self.carried, []
        for _ in range(self.mode.admission(self)):
            g = len(self.members)
            row = self.lengths[g % len(self.lengths)]
            self.members.append([Member(g, row[j % len(row)], self.now) for j in range(self.mode.samples)])
            new += self.members[g]
        new.sort(key=lambda m: m.group)
        for at, m in enumerate(new):
            loads = self.loads()
            half = len(new) - len(new) // 2
            m.replica = loads.index(min(loads)) if self.mode.least_load else int(at >= half)
            m.placed = True

    def choose(self) -> list[int] | None:
        """Groups for the trainer."""
        count = min(self.mode.micro_groups or self.missing, self.missing)
        while len(self.buffer) >= count:
            chosen, stale = self.sift()
            if len(chosen) >= count:
                return chosen[:count]
            if not stale:
                return None
            self.admit()
        return None

    def sift(self) -> tuple[list[int], list[int]]:
        """Groups that may be trained on, in order, and those that were dropped."""
        offered = list(self.buffer)
        if self.mode.in_order:
            first = min(self.under_way(), default=len(self.members))
            offered = sorted(g for g in offered if g < first)
        oldest = {g: min(m.version_start for m in self.members[g]) for g in offered}
        bound = self.mode.drop_above
        stale = [g for g in offered if bound is not None and self.version - oldest[g] > bound]
        self.discard(stale)
        self.buffer = [g for g in self.buffer if g not in stale]
        return [g for g in offered if g not in stale], stale

    def drained(self) -> bool | None:
        return None if self.running else True

    def train(self) -> "Generator[Callable[[Seconds], list[int] | bool | None], list[int] | bool, None]":
        mode = self.mode
        self.missing = mode.groups
        self.begin_round()
        for step in range(mode.steps):
            t0 = version = -1
            while self.missing:
                self.waits = "groups"
                groups = yield Seconds.choose
                assert isinstance(groups, list)
                if t0 < 0:
                    t0, version = self.now, self.version
                    if mode.shared:
                        self.hold = True
                        yield Seconds.drained
                        yield from self.sleep(SWITCH_S)
                for g in groups:
                    self.gone.add(g)
                    self.buffer.remove(g)
                    for m in self.members[g]:
                        m.fate, m.version_trained, m.step_trained = "trained", version, step
                if not mode.shared:
                    self.admit()
                self.missing -= len(groups)
                pieces = mode.mini_batches * mode.epochs if len(groups) == mode.groups else 1
                for i in range(pieces):
                    yield from self.sleep(TRAIN_S)
                    if mode.publish_each and i < pieces - 1:
                        yield from self.publish(last=False, ends_step=False)
            t1 = self.now
            yield from self.publish(last=step == mode.steps - 1)
            self.steps.append((t0, t1, self.now, self.version))

    def publish(self, *, last: bool, ends_step: bool = True) -> "Iterator":
        mode = self.mode
        if mode.how == "drain" and not mode.shared and not self.hold:
            self.hold = True
            self.waits = "the pool to drain"
            yield Seconds.drained
        self.stopped = self.stopped or (mode.how != "relay" and not mode.shared)
        yield from self.sleep(PUSH_S if mode.how == "relay" else SYNC_S)
        if mode.shared:
            yield from self.sleep(SWITCH_S)
        self.version += 1
        if mode.how == "relay":
            self.pull()
        else:
            self.versions, self.stopped = [self.version] * 2, False
        self.hold = True
        if ends_step:
            self.steps_done += 1
            self.missing = 0 if last else mode.groups
        if not last:
            self.begin_round()

    def sleep(self, seconds: float) -> "Iterator":
        until = self.now + int(seconds)
        yield lambda self: True if self.now >= until else None

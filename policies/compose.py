"""Several policies of one point as one: admission takes the minimum, selection chains, routing the first answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollsim.policies.base import Admission, Policy, Routing, Selected, Selection, Subscription, Unit, View


def joined(policies: Sequence[Policy]) -> Subscription:
    """Return a subscription that wakes whenever one of the policies wants to be."""

    def least(name: str) -> float:
        wanted = [getattr(policy.subscription, name) for policy in policies]
        return min((value for value in wanted if value), default=0)

    return Subscription(int(least("finishes")), int(least("groups")), least("every_s"))


@dataclass(frozen=True)
class Minimum:
    """The smallest number of groups that any of the policies lets start."""

    policies: Sequence[Admission]

    @property
    def subscription(self) -> Subscription:
        """That of the most curious."""
        return joined(self.policies)

    def may_start(self, view: View) -> int:
        """Ask all."""
        return min([policy.may_start(view) for policy in self.policies])


@dataclass(frozen=True)
class Chain:
    """Each policy selects among what the one before left; what any drops is dropped. Empty: all, as they come."""

    policies: Sequence[Selection]

    @property
    def subscription(self) -> Subscription:
        """That of the most curious."""
        return joined(self.policies)

    def select(self, view: View, units: Sequence[Unit]) -> Selected:
        """Ask one after the other."""
        dropped: list[Unit] = []
        for policy in self.policies:
            units, more = policy.select(view, units)
            dropped += more
        return Selected(units, dropped)


@dataclass(frozen=True)
class FirstAnswer:
    """For each trajectory the replica of the first policy that names one."""

    policies: Sequence[Routing]

    @property
    def subscription(self) -> Subscription:
        """That of the most curious."""
        return joined(self.policies)

    def route(self, view: View, count: int) -> Sequence[int | None]:
        """Ask until all have a replica."""
        first, *others = self.policies
        routed = first.route(view, count)
        for policy in others:
            if None not in routed:
                break
            answers = policy.route(view, count)
            routed = [new if old is None else old for old, new in zip(routed, answers, strict=True)]
        return routed

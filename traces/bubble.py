"""The ledger read three ways: bubble by cause, what moves weights and roles, and the fate of generation."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa

from rollsim.traces.kpis import LedgerShare

BUBBLE = ("tail_bubble", "throttled", "starved", "tool_wait", "failed", "idle")
MOVING = ("sync", "switch", "checkpoint", "warm_up")


@dataclass(frozen=True)
class PoolUse:
    """GPU-seconds of one pool.

    Attributes
    ----------
    gpu_s
        All that it held.
    bubble_gpu_s, bubble_share
        Held and not used: the categories in `BUBBLE`.
    moving_gpu_s
        Neither bubble nor work on tokens: the categories in `MOVING`.
    causes
        The lines of the bubble, largest first; their shares are of the pool's GPU-seconds.
    """

    pool: str
    gpu_s: float
    bubble_gpu_s: float
    bubble_share: float
    moving_gpu_s: float
    causes: tuple[LedgerShare, ...]

    def document(self) -> dict[str, object]:
        """Return the numbers as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Fate:
    """GPU-seconds of generation that became this, and their share of all with a fate."""

    fate: str
    reason: str | None
    gpu_s: float
    share: float

    def document(self) -> dict[str, object]:
        """Return the numbers as JSON."""
        return asdict(self)


def bubbles(ledger: Iterable[LedgerShare]) -> list[PoolUse]:
    """Bubble of each pool from the lines of `rollsim.traces.kpis.Kpis`; the pool that holds most comes first."""
    lines = list(ledger)
    uses = []
    for pool in dict.fromkeys(line.pool for line in lines):
        mine = [line for line in lines if line.pool == pool]
        gpu_s = sum(line.gpu_s for line in mine)
        causes = tuple(
            LedgerShare(pool, line.category, line.cause, line.gpu_s, _ratio(line.gpu_s, gpu_s))
            for line in mine
            if line.category in BUBBLE and line.gpu_s > 0
        )
        bubble_gpu_s = sum(line.gpu_s for line in causes)
        moving_gpu_s = sum(line.gpu_s for line in mine if line.category in MOVING)
        uses.append(PoolUse(pool, gpu_s, bubble_gpu_s, _ratio(bubble_gpu_s, gpu_s), moving_gpu_s, causes))
    return sorted(uses, key=lambda use: -use.gpu_s)


def fates(ledger: pa.Table | None) -> list[Fate]:
    """What became of the generation in a ledger table, largest first."""
    if ledger is None:
        return []
    keys = ["fate", "discard_reason"]
    plain = pa.table({name: ledger[name].cast(pa.string()) for name in keys} | {"gpu_s": ledger["gpu_s"]})
    summed = [row for row in plain.group_by(keys).aggregate([("gpu_s", "sum")]).to_pylist() if row["fate"]]
    total = sum(row["gpu_s_sum"] for row in summed)
    found = [
        Fate(row["fate"], row["discard_reason"], row["gpu_s_sum"], _ratio(row["gpu_s_sum"], total)) for row in summed
    ]
    return sorted(found, key=lambda fate: (-fate.gpu_s, fate.fate, fate.reason or ""))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0

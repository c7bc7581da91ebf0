"""The ledger of a run: every GPU-second of every lease, and what became of the generation among them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from rollsim.simulator.leases import Lease
from rollsim.simulator.trajectories import DISCARDED, REASONS, TRAINED
from rollsim.traces.schema import build

GENERATION = ("prefill", "decode", "reprefill", "draft", "verify", "host")
Settled = tuple[str, str | None]


def fate_shares(rows: np.ndarray) -> dict[Settled, float]:
    """Share of the generated and recomputed tokens by fate and reason of their trajectories; the shares add up to 1.

    Parameters
    ----------
    rows : array [n] of TRAJECTORY
    """
    undecided: Settled = ("undecided", None)
    names: list[Settled] = [undecided, ("trained", None), ("discarded", None)]
    names += [("discarded", reason) for reason in REASONS]
    fate = rows["fate"]
    kind = np.where(fate == TRAINED, 1, np.where(fate == DISCARDED, 3 + rows["reason"], 0))
    tokens = np.maximum(rows["output_tokens"], 0) + np.maximum(rows["recomputed_tokens"], 0).astype(np.int64)
    sums = np.bincount(kind, weights=tokens, minlength=len(names))
    total = sums.sum()
    if not total:
        return {undecided: 1.0}
    return {name: float(tokens / total) for name, tokens in zip(names, sums, strict=True) if tokens}


def ledger(leases: Iterable[Lease], fates: Mapping[Settled, float]) -> pa.Table:
    """GPU-seconds by pool, category, cause and, for generation, fate.

    Generation accrues to each trajectory in proportion to its generated and recomputed tokens and is settled at its
    fate: a second breakdown of the same seconds.

    Parameters
    ----------
    leases
        All leases, ended.
    fates
        From `fate_shares`.
    """
    none: Mapping[tuple[str | None, str | None], float] = {(None, None): 1.0}
    found: dict[tuple[str | None, ...], float] = defaultdict(float)
    for lease in leases:
        for (category, cause), seconds in lease.charges.items():
            for settled, share in (fates if category in GENERATION else none).items():
                found[lease.role, category, cause, *settled] += seconds * share * lease.count
    kept = {key: gpu_s for key, gpu_s in sorted(found.items(), key=str) if gpu_s}
    labels = ("pool", "category", "cause", "fate", "discard_reason")
    columns = {name: pa.array([key[i] for key in kept], pa.string()) for i, name in enumerate(labels)}
    return build("ledger", columns | {"gpu_s": np.array(list(kept.values()))})

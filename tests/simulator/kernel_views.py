"""Views of a kernel's state for tests: its bits, its prefix cache block by block, its pools at rest."""

from collections import defaultdict

import numpy as np

from rollsim.simulator.kernel import state
from tests.reference.engine import Engine
from tests.simulator.timed_replica import TimedReplica

LOGS = {"gauge": "gauge_n", "span": "span_n", "segment": "seg_top", "hold": "hold_top"}


def bits(s):
    """Every value that a run depends on or reports, exactly; neither padding nor rows that were never written."""
    seen = {}
    for name in ("engine", "rank", "request", "slot", "residues", "sums", *LOGS):
        array = getattr(s, name)
        if name in LOGS:
            array = array[: s.engine[0][LOGS[name]]]
        for column in array.dtype.names or ("",):
            values = array[column] if column else array
            seen[f"{name}.{column}"] = np.ascontiguousarray(values).tobytes()
    return seen


def live_slots(s):
    """Slots of the requests in `running`."""
    return np.flatnonzero((s.request["state"] >= state.RUNNING) & (s.request["state"] <= state.ENDING))


def has_plain_versions(world):
    """Whether a block carries the version under which it was allocated: nothing drafted ahead, no KV from elsewhere."""
    return world.limits["num_speculative_tokens"] == 0 and not any(
        touch.get("drafts") or touch.get("kv_tokens") or (touch["kind"] == "take_out" and touch["keep_kv"])
        for touch in world.touches
    )


class SeenReference(Engine):
    """The reference, which also shows its prefix caches and the oldest version in each request's KV."""

    plain = False

    def state(self):
        running = [sequence for rank in self.ranks for sequence in rank.running if self.plain]
        versions = {q.id: min(block.version for block in q.blocks) for q in running if q.blocks}
        return [*super().state(), versions]

    def cache(self):
        """Per rank, by content and position: (references, version) of each copy in order of registration."""
        return [
            {
                key: [(block.references, block.version if self.plain else None) for block in copies]
                for key, copies in rank.pool.copies.items()
            }
            for rank in self.ranks
        ]


class SeenReplica(TimedReplica):
    """The replica with the same views."""

    plain = False

    def state(self):
        versions = {self._ids[r]: self.kv(self._ids[r])[1] for r in live_slots(self.arrays) if self.plain}
        return [*super().state(), versions]

    def cache(self):
        s = self.arrays
        caches = []
        for first_segment in s.slot["first_segment"][:, : len(self._ids)]:
            copies = defaultdict(list)
            for owner, first in enumerate(first_segment):
                for segment in s.segment[_chain(s.segment["content_next"], first)]:
                    for block in range(segment["lo"], segment["hi"]):
                        version = int(segment["version"]) if self.plain else None
                        copies[owner, block].append((int(segment["refs"]), version))
            caches.append(dict(copies))
        return caches


def assert_at_rest(s):
    """Every block is free, every queue and count is empty, and no record is lost (INV-3)."""
    engine = s.engine[0]
    assert engine["n_unfinished"] == 0
    free_segments = _length(s.segment["lru_next"], engine["seg_free"])
    for rank in s.rank:
        assert rank["free_keyless"] + rank["free_keyed"] == engine["num_blocks"]
        for name in ("running", "waiting", "unfinished", "decoding", "ending", "odd", "sharing"):
            assert rank[f"n_{name}"] == 0, name
        assert rank["demand"] == 0
        for name in ("run_head", "run_tail", "wait_head", "wait_tail"):
            assert rank[name] == state.NONE, name
        cached = _chain(s.segment["lru_next"], rank["lru_head"])
        assert sum(int(s.segment[g]["hi"] - s.segment[g]["lo"]) for g in cached) == rank["free_keyed"]
        assert all(s.segment[g]["refs"] == 0 for g in cached)
        free_segments += len(cached)
    assert free_segments == engine["seg_top"]
    assert _length(s.hold["next"], engine["hold_free"]) == engine["hold_top"]
    assert not s.residues.any()
    assert not s.sums.any()


def _chain(following, g):
    chain = []
    while g != state.NONE:
        chain.append(g)
        g = following[g]
    return chain


def _length(following, g):
    return len(_chain(following, g))

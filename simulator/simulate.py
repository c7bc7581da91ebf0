"""One config, run: its tables, what is said of them, and the run folder."""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from rollsim.simulator import run_document
from rollsim.simulator.basis import basis
from rollsim.simulator.config import Config, parse, read_document
from rollsim.simulator.examples import config_path
from rollsim.simulator.invariants import Finding, check
from rollsim.simulator.overrides import with_overrides
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.setup import Setup, resolve
from rollsim.simulator.warm_up import warm_up
from rollsim.simulator.world import World
from rollsim.simulator.world_tables import tables
from rollsim.traces.run import Run
from rollsim.traces.writer import write_run


@dataclass(frozen=True)
class Simulated:
    """A run that is over.

    Attributes
    ----------
    setup : Setup
    tables : dict
        By name, of `rollsim.traces.schema`.
    document : dict
        All that is said of it, as JSON.
    findings : list of Finding
        Of the invariants.
    wall_s : float
        How long it took [s].
    """

    setup: Setup
    tables: dict[str, pa.Table]
    document: dict[str, Any]
    findings: list[Finding]
    wall_s: float

    @property
    def broken(self) -> list[Finding]:
        """Invariants that do not hold."""
        return [finding for finding in self.findings if not finding.ok]


def load(name_or_path: str, overrides: Sequence[str] = (), *, shares: bool = True) -> Config:
    """Read a config, by the name of an example or a path, with ``a.b=value`` words over it.

    Without `shares` its allocation need not fit the cluster.

    Raises
    ------
    BadInput
        With every fault.
    """
    path = config_path(name_or_path)
    return parse(with_overrides(read_document(path), overrides), name_or_path, shares=shares)


def simulate(setup: Setup, on_step: Callable[[int], None] | None = None) -> Simulated:
    """Run a world and check its tables.

    Parameters
    ----------
    setup : Setup
    on_step : callable, optional
        Called with the number of train steps done.

    Raises
    ------
    WorldFailed
        If the world cannot go on, or a policy breaks its word.
    """
    warm_up("run")
    began_s = time.perf_counter()
    world = World(setup, on_step=on_step)
    world.run()
    made, rests, leases, span_s = tables(world), basis(world), world.leases.all, world.end_s
    # Its records are as large as the tables.
    del world
    findings = check(
        made,
        gpus=setup.config.cluster.gpus,
        span_s=span_s,
        hard_eta=setup.policies.hard_eta,
        streams=setup.streams,
        leases=leases,
    )
    document = run_document.document(made, rests)
    return Simulated(setup, made, document, findings, time.perf_counter() - began_s)


def write(done: Simulated, out: str | os.PathLike[str]) -> Run:
    """Write the run folder."""
    setup = done.setup
    profile = load_profile(setup.config.model.profile)
    inputs = {
        profile.name: hashlib.sha256(profile.model_dump_json().encode()).hexdigest(),
        setup.workload.name: setup.workload.content_hash,
    }
    config = {"command": "run", **setup.config.model_dump(mode="json")}
    return write_run(out, done.tables, config, done.document, seed=setup.seed, inputs=inputs, wall_s=done.wall_s)


def replications(config: Config, file: str, seed: int, count: int) -> list[Setup]:
    """Resolve a config under `count` seeds from `seed` on."""
    return [resolve(config, file, seed + i) for i in range(count)]


def replication_path(out: Path, i: int, count: int) -> Path:
    """Folder of replication i: the target itself if there is only one."""
    return out if count == 1 else out / f"rep-{i}"

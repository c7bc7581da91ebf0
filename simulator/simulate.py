"""One config, run: its tables, what is said of them, and the run folder."""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from rollsim.policies.base import EVERY_FINISH, Subscription, View
from rollsim.simulator import run_document
from rollsim.simulator.basis import basis
from rollsim.simulator.config import Config, parse, read_document
from rollsim.simulator.examples import config_path
from rollsim.simulator.invariants import Finding, check, same
from rollsim.simulator.overrides import with_overrides
from rollsim.simulator.policy_settings import DEFAULTS
from rollsim.simulator.profile_store import load_profile
from rollsim.simulator.setup import Setup, named_faults, resolve
from rollsim.simulator.warm_up import warm_up
from rollsim.simulator.world import World
from rollsim.simulator.world_tables import tables
from rollsim.traces.errors import BadInput, Fault, gathering
from rollsim.traces.run import Run
from rollsim.traces.writer import check_target, write_run


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
    document = read_document(config_path(name_or_path))
    faults: list[Fault] = []
    # The words one by one: what is wrong with one must not hide what the others break.
    for word in overrides:
        with gathering(faults):
            document = with_overrides(document, (word,))
    config = None
    with gathering(faults):
        config = parse(document, name_or_path, shares=shares)
    if config is None or faults:
        raise BadInput(faults + named_faults(document, name_or_path))
    return config


def resolved(config: Config) -> dict[str, Any]:
    """Return the config as a document in which every section and every decision point is said."""
    document = config.model_dump(mode="json")
    return document | {"policies": DEFAULTS | document["policies"]}


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


@dataclass(frozen=True)
class _Onlooker:
    """Is told of every finish, and does nothing."""

    subscription: Subscription = EVERY_FINISH

    def look(self, view: View) -> None:
        """Look away."""


def check_twice(done: Simulated, on_step: Callable[[int], None] | None = None) -> list[Finding]:
    """Findings of what only the run itself, or a second one, can show: INV-7 and INV-10.

    Parameters
    ----------
    done : Simulated
    on_step : callable, optional
        Called with the number of train steps that the second run has done.
    """
    world = World(done.setup, [_Onlooker()], on_step)
    world.run()
    return [
        same("INV-7", "tables of a second run, watched at every finish, that differ", done.tables, tables(world)),
        Finding("INV-10", "each answer of a policy was one that it had been offered, checked in the run", ok=True),
    ]


def write(done: Simulated, out: str | os.PathLike[str]) -> Run:
    """Write the run folder."""
    setup = done.setup
    profile = load_profile(setup.config.model.profile)
    inputs = {
        profile.name: hashlib.sha256(profile.model_dump_json().encode()).hexdigest(),
        setup.workload.name: setup.workload.content_hash,
    }
    config = {"command": "run", **resolved(setup.config)}
    return write_run(out, done.tables, config, done.document, seed=setup.seed, inputs=inputs, wall_s=done.wall_s)


def replications(config: Config, file: str, seed: int, count: int) -> list[Setup]:
    """Resolve a config under `count` seeds from `seed` on."""
    return [resolve(config, file, seed + i) for i in range(count)]


def run_folders(out: str | None, count: int) -> list[Path | None]:
    """Where the runs of `count` replications go: the target itself if there is one, else ``rep-0``, ... in it.

    Raises
    ------
    BadInput
        If something stands there that is not an older run of the same kind; more replications than now would stay
        among the new ones.
    """
    if out is None:
        return [None] * count
    target = Path(out)
    if count == 1 or not out:
        check_target(out)
        return [target]
    folders = [target / f"rep-{i}" for i in range(count)]
    others = [path.name for path in sorted(target.iterdir()) if path not in folders] if target.is_dir() else []
    faults: list[Fault] = []
    if others:
        allowed = f"a new or empty folder, or {count} older replications, which are replaced"
        faults.append(Fault(out, allowed=allowed, message=f"holds other things: {', '.join(others[:3])}"))
    for folder in folders if target.is_dir() else [target]:
        with gathering(faults):
            check_target(folder)
    if faults:
        raise BadInput(faults)
    return list(folders)

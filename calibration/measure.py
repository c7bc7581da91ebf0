"""Measures a real engine: plans batches to a time budget, runs them in rounds, keeps each as soon as it is done."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rollsim.calibration.batch import Batch
from rollsim.calibration.engine_faults import EngineFailed, EngineUnfit
from rollsim.calibration.engine_process import EngineProcess
from rollsim.calibration.measurement import Measurement
from rollsim.calibration.speed import Speed, estimate_s, measured_speed
from rollsim.calibration.sweep import REFERENCE, REFERENCE_RUNS, SPANS, Sweep, warm_up
from rollsim.simulator.limits import EngineLimits
from rollsim.traces.errors import BadInput, Fault

# The plan takes a third of the time, so that every batch is run about three times.
PLAN_SHARE = 1 / 3
_SPECULATION = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}}


class Engine(Protocol):
    """What `EngineProcess` offers."""

    facts: dict[str, Any]

    def record(self, batch: Batch) -> dict[str, Any]:
        """Run a batch and return its recording."""
        ...

    def time(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Time something else."""
        ...

    def close(self) -> None:
        """End the engine."""
        ...


Open = Callable[[str, Mapping[str, Any], int, Path], Engine]


@dataclass
class Engines:
    """Opens one engine at a time, warmed up, and another only when other options are asked for."""

    model: str
    options: Mapping[str, Any]
    seed: int
    log: Path
    open: Open
    _engine: Engine | None = None
    _options: Mapping[str, Any] = field(default_factory=dict)
    speed: Speed | None = None

    def get(self, options: Mapping[str, Any]) -> Engine:
        """Return the engine with these options over those of the measurement."""
        if self._engine is None or self._options != options:
            self.close()
            self._engine = self.open(self.model, {**self.options, **options}, self.seed, self.log)
            self._options = options
            batch = warm_up(EngineLimits(**self._engine.facts["limits"]))
            self._engine.record(batch)
            self.speed = measured_speed(self._engine.record(batch))
        return self._engine

    def close(self) -> None:
        """End the engine that is open."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def measure(
    model: str,
    out: Path,
    *,
    minutes: float = 10.0,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    progress: Callable[[float, str], None] = lambda _done, _what: None,
    open_engine: Open = EngineProcess,
) -> dict[str, Any]:
    """Measure an engine into a folder; go on with what is missing if it was begun.

    Parameters
    ----------
    model
        Folder of a model, or its name on a hub.
    out
        Folder of the measurement.
    minutes
        Time to spend, over all runs on this folder [min]. Every planned batch is run once even if it takes longer.
    seed
        Of lengths, prompts and sampling.
    options
        Engine arguments under vLLM's names.
    progress
        Told how much is done, from 0 to 1, and with what.
    open_engine
        How an engine is opened.

    Returns
    -------
    dict
        What was measured, as JSON.

    Raises
    ------
    BadInput
        The folder holds another measurement, the model is not there or does not fit.
    EngineFailed
        The engine crashed. What was measured is kept.
    """
    _check_model(model)
    folder = Measurement(out)
    engines = Engines(model, dict(options or {}), seed, out / "engine.log", open_engine)
    began, spent_s = time.monotonic(), folder.manifest.get("spent_s", 0.0)
    same = False

    def spent() -> float:
        return spent_s + time.monotonic() - began

    try:
        base = _begin(folder, engines, minutes)
        same = True
        planned = Sweep(EngineLimits(**base["limits"]), folder.manifest["span"], seed).batches()
        for done, batch in rounds(planned, folder, seed, lambda: spent() < 60 * minutes):
            progress(min(0.99, max(done, spent() / (60 * minutes))), batch.name)
            if batch.options:
                # The engine without options is still open.
                _extras(folder, engines, speculation=False)
            folder.add(batch.name, engines.get(batch.options).record(batch))
            folder.manifest["spent_s"] = round(spent(), 1)
            folder.save()
        progress(0.99, "other timings")
        _extras(folder, engines, speculation=True)
        engines.log.unlink(missing_ok=True)
    except EngineUnfit as error:
        raise BadInput(Fault(model, message=str(error))) from error
    finally:
        engines.close()
        if same:
            folder.manifest["spent_s"] = round(spent(), 1)
            folder.save()
            folder.write_tables()
    progress(1.0, "")
    return summary(folder)


def _check_model(model: str) -> None:
    path = Path(model)
    if path.is_dir() and not (path / "config.json").is_file():
        raise BadInput(Fault(model, allowed="a folder with config.json and weights", message="holds no model"))
    if path.is_file() or (not path.exists() and (path.is_absolute() or model.startswith((".", "~")))):
        raise BadInput(Fault(model, allowed="the folder of a model, or its name on a hub", message="is no model"))


def _begin(folder: Measurement, engines: Engines, minutes: float) -> dict[str, Any]:
    """Open the engine, check that it is the one of the folder, and plan if nothing is planned yet."""
    facts = engines.get({}).facts
    folder.begin({**facts, "options": dict(engines.options), "seed": engines.seed})
    folder.manifest["minutes"] = max(minutes, folder.manifest.get("minutes", 0.0))
    if "planned" not in folder.manifest:
        assert engines.speed is not None
        limits = EngineLimits(**facts["limits"])
        span = _span(limits, engines.seed, engines.speed, 60 * minutes * PLAN_SHARE)
        batches = Sweep(limits, span, engines.seed).batches()
        folder.manifest["span"] = span
        folder.manifest["planned"] = [
            {"name": batch.name, "purpose": batch.purpose, "role": batch.role, "options": batch.options}
            for batch in batches
        ]
    folder.save()
    return facts


def _span(limits: EngineLimits, seed: int, speed: Speed, seconds: float) -> int:
    """The longest span whose batches fit the time, else the shortest there is."""
    for span in SPANS:
        if estimate_s(Sweep(limits, span, seed).batches(), limits, speed) <= seconds:
            return span
    return SPANS[-1]


def rounds(
    batches: list[Batch], folder: Measurement, seed: int, more_time: Callable[[], bool]
) -> Iterator[tuple[float, Batch]]:
    """Batches in the order to run them, each with the share of the first round that is done.

    A round shuffles what shares an engine and strews in the reference batch, so that a machine that gets slower does
    so for all alike. After the first round it goes on while there is time.
    """
    reference = next(batch for batch in batches if batch.name == REFERENCE)
    others = [batch for batch in batches if batch is not reference]
    runs = {batch.name: folder.repeats(batch.name) for batch in batches}
    number = 0
    while number == 0 or more_time():
        rng = random.Random(f"{seed} {number}")
        kinds: dict[str, list[Batch]] = {}
        for batch in others:
            kinds.setdefault(repr(batch.options), []).append(batch)
        # The engine that was used last is used first in the next round.
        for kind in sorted(kinds, key=len, reverse=number % 2 == 1):
            group = rng.sample(kinds[kind], len(kinds[kind]))
            if not group[0].options:
                for i in range(REFERENCE_RUNS):
                    group.insert(i * len(group) // (REFERENCE_RUNS - 1), reference)
            for batch in group:
                wanted = number * REFERENCE_RUNS + REFERENCE_RUNS if batch is reference else number + 1
                if runs[batch.name] < wanted:
                    if number and not more_time():
                        return
                    total = len(others) + REFERENCE_RUNS
                    yield min(1.0, sum(runs.values()) / total), batch
                    runs[batch.name] += 1
        number += 1


def _extras(folder: Measurement, engines: Engines, *, speculation: bool) -> None:
    """Time what is not a step, once; what an engine cannot do is said beside it.

    Speculation needs an engine of its own.
    """
    limits = EngineLimits(**folder.manifest["limits"])
    seqs = min(8, limits.max_num_seqs)
    tasks: dict[str, tuple[Mapping[str, Any], dict[str, Any]]] = {
        "abort_resume": ({}, {"seqs": seqs}),
        "weight_reload": ({}, {"seqs": seqs, "weights": engines.model}),
        "pause_recompute": ({}, {"seqs": seqs}),
        "sleep_wake": ({}, {}),
        "speculation_off": ({}, {"seqs": seqs, "output_tokens": 64}),
        "speculation_ngram": (_SPECULATION, {"seqs": seqs, "output_tokens": 64}),
    }
    extras = folder.manifest.setdefault("extras", {})
    for name, (options, arguments) in tasks.items():
        if name in extras or (options and not speculation):
            continue
        try:
            extras[name] = engines.get(options).time(name.removesuffix("_off").removesuffix("_ngram"), **arguments)
        except EngineFailed as error:
            extras[name] = {"not_timed": str(error)}
            engines.close()
        folder.save()


def summary(folder: Measurement) -> dict[str, Any]:
    """What a folder holds, as JSON."""
    manifest = folder.manifest
    batches = []
    for planned in manifest["planned"]:
        recording = folder.recording(planned["name"])
        if recording is not None:
            batches.append(
                {
                    "name": planned["name"],
                    "role": planned["role"],
                    "steps": recording["steps"],
                    "preemptions": recording["preemptions"],
                    "repeats": len(recording["repeats"]),
                    "wall_s": [round(sum(repeat["wall_ms"]) / 1e3, 4) for repeat in recording["repeats"]],
                    "cpu_s": [round(sum(repeat["cpu_ms"]) / 1e3, 4) for repeat in recording["repeats"]],
                }
            )
    kept = ("engine", "model", "device", "clock", "limits", "span", "minutes", "spent_s")
    return {
        "format": manifest["format"],
        "schema_version": manifest["schema_version"],
        "folder": str(folder.path),
        **{key: manifest[key] for key in kept},
        "planned": len(manifest["planned"]),
        "faults": manifest.get("faults", []),
        "batches": batches,
        "extras": manifest.get("extras", {}),
    }

"""Step metrics as they are read from a log, and the tables ``steps`` and ``metrics`` made of them."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rollsim.traces.importers.damage import Damage
from rollsim.traces.importers.step_definitions import Meanings
from rollsim.traces.importers.step_meanings import read_meanings
from rollsim.traces.metric_names import meanings
from rollsim.traces.schema import STEPS, build

_MAX_STEP = 2**53


class StepLog:
    """Metrics by step. Records of one step are joined: frameworks log a step in several.

    Parameters
    ----------
    damage
        Where faults are counted.
    """

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        self.values: dict[int, dict[str, float]] = {}
        self.clock_s: dict[int, float] = {}
        self.end_s: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self.values)

    def add(
        self,
        step: object,
        values: Mapping[str, object],
        place: str,
        clock_s: float | None = None,
        *,
        is_end: bool = False,
    ) -> None:
        """Add a record.

        Parameters
        ----------
        step
            Number of the step; what is none is counted and the record left out.
        values
            Metrics by name; what is no number is passed over, for trackers also hold text and pictures.
        place
            Where it stands.
        clock_s
            Time of the record on any clock [s].
        is_end
            Whether it was written when its step ended. A step ends with the latest of these; with the latest record of
            all if a log has none of them.
        """
        number = _step(step)
        if number is None:
            self.damage.add("a record without a step, which is left out", place, step, "a whole number, at least 0")
            return
        known = self.values.setdefault(number, {})
        again = False
        for name, value in values.items():
            if not isinstance(value, int | float):
                continue
            try:
                found = float(value)
            except OverflowError:
                found = math.inf
            if not math.isfinite(found):
                self.damage.add("a metric is not finite, and not used", f"{place}, {name}", value, "a finite number")
                continue
            again = again or known.get(name, found) != found
            known[name] = found
        if again:
            self.damage.add(
                "a step was logged again (resumed, or another run); the later values are used",
                place,
                number,
                "each step once",
            )
        if clock_s is not None and math.isfinite(clock_s):
            self.clock_s[number] = max(clock_s, self.clock_s.get(number, -math.inf))
            if is_end:
                self.end_s[number] = max(clock_s, self.end_s.get(number, -math.inf))

    def tables(self, framework: str, zero_s: float | None = None) -> tuple[dict[str, pa.Table], Meanings]:
        """Return ``steps`` and ``metrics``, and what had to be derived for them.

        Parameters
        ----------
        framework
            Whose metrics these are.
        zero_s
            Earliest time of the trajectories on the same clock [s], if they have any: steps are counted from it, or
            from the begin of the first if that was earlier.
        """
        numbers = [number for number in sorted(self.values) if meanings(framework, self.values[number])]
        unused = sorted(set(self.values) - set(numbers))
        clocks = self.end_s or self.clock_s
        clock = np.array([clocks.get(number, np.nan) for number in numbers])
        if (backwards := np.flatnonzero(np.diff(clock) < 0)).size:
            place = f"step {numbers[backwards[0] + 1]}"
            what = "the clock went back from one step to the next; clock times are not used"
            self.damage.add(what, place, count=len(backwards))
            clock[:] = np.nan
        read = read_meanings(
            framework, [self.values[number] for number in numbers], clock, zero_s, self.damage, numbers
        )
        if unused:
            what = f"{len(unused)} of {len(self.values)} logged steps have none of the train metrics (step {unused[0]})"
            read.derived.append(f"{what}, as a validation before training: they are in metrics alone")
        columns: dict[str, Any] = {
            name: np.ma.masked_invalid(np.round(values)) if pa.types.is_integer(STEPS.field(name).type) else values
            for name, values in read.columns.items()
            if not np.isnan(values).all()
        }
        tables = {"steps": build("steps", {"step": np.array(numbers, dtype=np.int64), **columns})}
        return tables | {"metrics": self._metrics()}, read

    def _metrics(self) -> pa.Table:
        numbers = sorted(self.values)
        sizes = [len(self.values[number]) for number in numbers]
        names = [name for number in numbers for name in self.values[number]]
        return build(
            "metrics",
            {
                "step": np.repeat(np.array(numbers, dtype=np.int64), sizes),
                "name": pa.array(names, pa.string()).dictionary_encode(),
                "value": np.array([value for number in numbers for value in self.values[number].values()], float),
            },
        )


def _step(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= _MAX_STEP or value != math.floor(value):
        return None
    return int(value)

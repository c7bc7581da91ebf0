"""What an import gives: tables, what was found and derived, what is missing and how to get it, and what was damaged."""

from dataclasses import asdict, dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollsim.traces.errors import Fault


@dataclass(frozen=True)
class Missing:
    """Something that a log does not tell, and the setting that would make the framework log it."""

    what: str
    setting: str


@dataclass(frozen=True)
class ImportedLog:
    """A log of a framework as tables.

    Parameters
    ----------
    path
        What was imported.
    framework
        Whose log it is.
    tables
        Tables of `rollsim.traces.schema` by name: those that the log has something for.
    found
        What was read, in sentences.
    derived
        What is not in the log but follows from it, and where definitions were converted, in sentences.
    missing
        What the log does not tell, with the setting that would.
    faults
        What was damaged, one fault a kind with its count and first places.
    fault_count
        Faults in all.
    facts
        Single numbers of the run, such as ``max_output_tokens``.
    """

    path: str
    framework: str
    tables: dict[str, pa.Table]
    found: tuple[str, ...]
    derived: tuple[str, ...]
    missing: tuple[Missing, ...]
    faults: tuple[Fault, ...]
    fault_count: int = 0
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def rollouts(self) -> pa.Table | None:
        """One row a trajectory, if the log has any."""
        return self.tables.get("rollouts")

    @property
    def steps(self) -> pa.Table | None:
        """One row a train step in ascending order, if the log has any; what is not known is null."""
        return self.tables.get("steps")

    @property
    def metrics(self) -> pa.Table | None:
        """All step metrics under the framework's own names: step, name, value."""
        return self.tables.get("metrics")

    def series(self, name: str) -> np.ndarray:
        """Return one metric under the framework's name, array [steps] beside `steps`, NaN where there is none."""
        if self.steps is None or self.metrics is None:
            return np.empty(0)
        rows = self.metrics.filter(pc.equal(self.metrics["name"].cast(pa.string()), name))
        values = np.full(len(self.steps), np.nan)
        values[np.searchsorted(self.steps["step"].to_numpy(), rows["step"].to_numpy())] = rows["value"].to_numpy()
        return values

    def document(self) -> dict[str, object]:
        """Return all but the tables as JSON."""
        return {
            "path": self.path,
            "framework": self.framework,
            "tables": {name: _columns(table) for name, table in self.tables.items()},
            "found": list(self.found),
            "derived": list(self.derived),
            "missing": [asdict(entry) for entry in self.missing],
            "faults": [asdict(fault) | {"given": _plain(fault.given), "text": str(fault)} for fault in self.faults],
            "fault_count": self.fault_count,
            "facts": dict(self.facts),
        }


def _columns(table: pa.Table) -> dict[str, object]:
    """Rows of a table, and the columns of which something is known."""
    known = [name for name in table.column_names if table[name].null_count < len(table)]
    return {"rows": len(table), "columns": known}


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | None) else str(value)

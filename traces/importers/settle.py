"""What is true of all rows only when all are read: names that stand twice, times that contradict each other, time 0."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollsim.traces.importers.damage import PLACES_SHOWN, Damage
from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.rows import Rows

# In the order in which they come; a log may lack any.
_ORDER = ("t_submit_s", "t_start_s", "t_first_token_s", "t_end_s", "t_final_s")
_TIMES = {"rollouts": _ORDER, "segments": ("t0_s", "t1_s"), "spans": ("t0_s", "t1_s"), "gauges": ("t_s",)}
# Clocks of one machine differ by less.
_SKEW_S = 1e-3
# What began further apart than this is on different clocks.
SAME_CLOCK_S = 86_400.0
# Text encoded again is not exactly as long as it was.
_NEARLY = 0.99


def drop_repeated(rollouts: pa.Table, damage: Damage) -> pa.Table:
    """Return the trajectories without those whose name stands before; they are counted."""
    names = rollouts["sample_id"]
    if names.null_count == len(names):
        return rollouts
    codes = names.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    _, first = np.unique(codes, return_index=True)
    keep = codes < 0
    keep[first] = True
    repeated = np.flatnonzero(~keep)
    if not len(repeated):
        return rollouts
    shown = [names[int(index)].as_py() for index in repeated[:PLACES_SHOWN]]
    what = "a trajectory stands more than once; the first is kept"
    for place in shown:
        damage.add(what, f"sample {place}")
    if len(repeated) > len(shown):
        damage.add(what, "", count=len(repeated) - len(shown))
    return rollouts.filter(pa.array(keep))


def drop_contradictions(rollouts: pa.Table, damage: Damage) -> pa.Table:
    """Return the trajectories, without the times of those where one comes before one that it must follow."""
    columns = {name: rollouts[name].to_numpy() for name in _ORDER if rollouts[name].null_count < len(rollouts)}
    if len(columns) < 2:
        return rollouts
    wrong = np.zeros(len(rollouts), bool)
    latest = np.full(len(rollouts), -np.inf)
    for times in columns.values():
        wrong |= times < latest - _SKEW_S
        latest = np.fmax(latest, times)
    bad = np.flatnonzero(wrong)
    if not len(bad):
        return rollouts
    what = "times in the wrong order (a clock was off); none of the trajectory's are used"
    for index in bad[:PLACES_SHOWN].tolist():
        given = ", ".join(f"{name} {times[index]:.3f}" for name, times in columns.items())
        damage.add(what, f"sample {rollouts['sample_id'][index].as_py() or f'row {index + 1}'}", given)
    if len(bad) > PLACES_SHOWN:
        damage.add(what, "", count=len(bad) - PLACES_SHOWN)
    for name, times in columns.items():
        known = pa.array(np.where(wrong, np.nan, times), from_pandas=True)
        rollouts = rollouts.set_column(rollouts.schema.get_field_index(name), rollouts.schema.field(name), known)
    return rollouts


def earliest_s(tables: Mapping[str, pa.Table]) -> float | None:
    """Return the earliest time of all tables [s], None if they have none."""
    found = [
        low
        for name, columns in _TIMES.items()
        if name in tables
        for column in columns
        if (low := pc.min(tables[name][column]).as_py()) is not None
    ]
    return min(found, default=None)


def on_one_clock(tables: dict[str, pa.Table], damage: Damage) -> dict[str, pa.Table]:
    """Return the tables; spans whose clock is not that of the trajectories count from their own beginning."""
    own_s = earliest_s({name: table for name, table in tables.items() if name == "spans"})
    other_s = earliest_s({name: table for name, table in tables.items() if name != "spans"})
    if own_s is None or other_s is None or abs(own_s - other_s) < SAME_CLOCK_S:
        return tables
    damage.add("spans and trajectories are on clocks more than a day apart; each counts from its own beginning", "")
    return counted_from({"spans": tables["spans"]}, own_s - other_s) | {
        name: table for name, table in tables.items() if name != "spans"
    }


def counted_from(tables: dict[str, pa.Table], zero_s: float) -> dict[str, pa.Table]:
    """Return the tables with times counted from a moment."""
    moved = dict(tables)
    for name in _TIMES.keys() & tables.keys():
        for column in _TIMES[name]:
            table = moved[name]
            if table[column].null_count == len(table):
                continue
            index = table.schema.get_field_index(column)
            moved[name] = table.set_column(index, table.schema.field(column), pc.subtract(table[column], zero_s))
    return moved


def whole_tables(growing: dict[str, Rows], damage: Damage) -> dict[str, pa.Table]:
    """Return those tables that have rows, checked."""
    tables = {name: rows.table() for name, rows in growing.items() if len(rows)}
    if "rollouts" in tables:
        tables["rollouts"] = drop_contradictions(drop_repeated(tables["rollouts"], damage), damage)
    return on_one_clock(tables, damage)


def truncations(rollouts: pa.Table, draft: Draft) -> pa.Table:
    """Return the trajectories with the limit that the step metrics tell, and which of them it cut."""
    limit = draft.facts.get("max_output_tokens")
    known = rollouts["output_tokens"].null_count < len(rollouts) and rollouts["is_truncated"].null_count == len(
        rollouts
    )
    if limit is None or not known:
        return rollouts
    draft.derived.append(
        f"cut off: trajectories of 99 % of {limit:g} tokens or more, the limit that the step metrics show"
    )
    added = {
        "is_truncated": pc.greater_equal(rollouts["output_tokens"], _NEARLY * limit),
        "max_output_tokens": pa.repeat(pa.scalar(int(limit), pa.int32()), len(rollouts)),
    }
    for name, values in added.items():
        rollouts = rollouts.set_column(rollouts.schema.get_field_index(name), rollouts.schema.field(name), values)
    return rollouts

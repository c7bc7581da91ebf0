"""Tables have the columns of their schema, each with a unit, and closed vocabularies stay closed."""

import numpy as np
import pyarrow as pa
import pytest

from rollsim.traces.schema import TABLES, build


@pytest.mark.parametrize("name", TABLES)
def test_every_column_says_its_unit_and_meaning(name):
    for field in TABLES[name]:
        assert set(field.metadata) >= {b"unit", b"doc"}
        assert field.metadata[b"doc"]
        if field.name.endswith("_s") and field.name != "gpu_s":
            assert field.metadata[b"unit"] == b"s"
        if field.name.endswith("_tokens"):
            assert field.metadata[b"unit"] == b"tokens"


def test_a_table_is_built_from_whole_columns():
    table = build(
        "rollouts",
        {
            "framework": "rollsim",
            "sample_id": pa.array(["a", "b"]),
            "group_id": np.ma.masked_equal([-1, 4], -1),
            "t_end_s": np.array([1.5, np.nan]),
            "finish_reason": pa.DictionaryArray.from_arrays(np.array([1, 0], np.int8), ["length", "abort"]),
        },
    )
    assert table.schema.equals(TABLES["rollouts"], check_metadata=True)
    chosen = table.select(["framework", "sample_id", "group_id", "t_end_s", "finish_reason", "reward"])
    assert chosen.to_pylist() == [
        {"framework": "rollsim", "sample_id": "a", "group_id": None, "t_end_s": 1.5, "finish_reason": "abort",
         "reward": None},
        {"framework": "rollsim", "sample_id": "b", "group_id": 4, "t_end_s": None, "finish_reason": "length",
         "reward": None},
    ]  # fmt: skip


def test_an_empty_table():
    assert build("spans", {"t0_s": np.array([])}).num_rows == 0


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("rollout", {}, "closest: rollouts"),
        ("rollouts", {"promt_tokens": np.ones(2)}, "prompt_tokens"),
        ("rollouts", {"prompt_tokens": np.ones(2), "output_tokens": np.ones(3)}, "one length"),
        ("rollouts", {"prompt_tokens": np.full(2, 1.5)}, "truncated"),
        ("rollouts", {"framework": "rollsim"}, "one length"),
        ("ledger", {"category": pa.array(["decode", "sleeping"])}, "sleeping"),
    ],
)
def test_what_does_not_fit_is_refused(name, columns, message):
    with pytest.raises(ValueError, match=message):
        build(name, columns)

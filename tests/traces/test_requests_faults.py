"""Every fault of a request trace is named with its rows, all at once, and never as a traceback."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollsim.traces.errors import BadInput
from rollsim.traces.request_columns import ALIASES, match, misspelt, unknown
from rollsim.traces.requests import read_requests
from tests.traces.test_requests import faults_of, in_format, trace  # noqa: F401 - a fixture

HEAD = "prompt_tokens,output_tokens\n"


def test_all_faults_are_named_at_once(trace):  # noqa: F811
    rows = ["0,1", "-3,1", "4.5,1", "x,1", ",1", "1e300,1", "5,0", "5,nan", "5,1,9", "5"]
    faults = faults_of(trace(HEAD + "7,7\n" + "\n".join(rows) + "\n"))
    assert [fault.split(";")[0] for fault in faults] == [
        "lines 11, 12: wrong number of fields",
        "line 7, column prompt_tokens: no value",
        "line 6, column prompt_tokens: not a number",
        "line 5, column prompt_tokens: not a whole number",
        "line 3, column prompt_tokens: zero",
        "line 4, column prompt_tokens: negative",
        "line 8, column prompt_tokens: too large",
        "line 10, column output_tokens: no value",
        "line 9, column output_tokens: zero",
    ]
    assert "given '4.5'; allowed: a whole number from 1 to 2147483647" in faults[3]


def test_many_rows_are_counted_and_five_are_shown(trace):  # noqa: F811
    (fault,) = faults_of(trace(HEAD + "5,5\n" * 3 + "0,5\n" * 100))
    assert fault.startswith("lines 5, 6, 7, 8, 9 and 95 more, column prompt_tokens: zero; given '0'")


def test_missing_columns_and_what_may_have_been_meant(trace):  # noqa: F811
    faults = faults_of(trace("promt_tokenz,when,lenght\n1,2,3\n"))
    assert len(faults) == 2
    assert "no column for prompt_tokens" in faults[0]
    assert "given 'promt_tokenz, when, lenght'" in faults[0]
    assert "did you mean 'promt_tokenz'" in faults[0]
    assert "no column for output_tokens" in faults[1]


def test_arrivals(trace):  # noqa: F811
    head = "arrival_s,prompt_tokens,output_tokens\n"
    faults = faults_of(trace(head + "0,1,1\n-1,1,1\n,1,1\nsoon,1,1\n1e999,1,1\n"))
    assert [fault.split(";")[0].split(": ")[1] for fault in faults] == [
        "no value",
        "not a number",
        "not finite",
        "negative",
    ]
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    faults = faults_of(trace(head + "2023-11-16 18:17:03,1,1\n2023-13-16 18:17:03,1,1\nnoon,1,1\n,1,1\n"))
    assert [fault.split(",")[0].split(":")[0] for fault in faults] == ["line 5", "lines 3"]
    assert "not a date and time" in faults[1]


OPTIONAL = [name for meaning in ("arrival", "group", "id", "priority") for name in ALIASES[meaning]]


def slips(name: str) -> set[str]:
    """Every way to leave a character out, to double one, to swap two or to take the vowels away."""
    found = {name[:i] + name[i + 1 :] for i in range(len(name))}
    found |= {name[:i] + name[i] + name[i:] for i in range(len(name))}
    found |= {name[:i] + name[i + 1] + name[i] + name[i + 2 :] for i in range(len(name) - 1)}
    return found | {name[0] + "".join(c for c in name[1:] if c not in "aeiou")}


@pytest.mark.parametrize("name", [name for name in OPTIONAL if len(name) > 5])
def test_an_optional_column_that_is_misspelt_is_a_fault(name):
    for slip in slips(name):
        if not unknown([slip]) or len(slip) < 4:
            continue
        (fault,) = misspelt("t.csv", ["prompt_tokens", "output_tokens", slip])
        assert fault.given == slip
        assert fault.closest in OPTIONAL
        assert match([fault.closest]).keys() <= {"arrival", "group", "id", "priority"}


@pytest.mark.parametrize(("name", "meant"), [("arival_s", "arrival_s"), ("grp", "group"), ("prority", "priority")])
def test_a_misspelt_column_is_named_with_what_was_meant(trace, name, meant):  # noqa: F811
    (fault,) = faults_of(trace(f"{name},{HEAD}1,2,3\n"))
    assert fault.startswith(f"columns: unknown column; given '{name}'")
    assert f"did you mean '{meant}'?" in fault
    with_both = read_requests(trace(f"{name},{meant},{HEAD}5,1,2,3\n"))
    assert with_both.unused_columns == (name,)


def test_other_unknown_columns_are_named():
    """What other programs write beside is not taken for a slip."""
    others = ["hash_ids", "model", "session_id", "user_id", "uid", "group_size", "start_time", "t_start_s", "time",
              "created_at", "question_id", "arrival_rate", "turn"]  # fmt: skip
    assert misspelt("t.csv", ["prompt_tokens", "output_tokens", *others]) == []
    ours = ["t_start_s"]
    assert unknown(["prompt_tokens", *others, "Priority"]) == [name for name in others if name not in ours]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_unknown_columns_are_kept_with_the_trace(trace, suffix):  # noqa: F811
    table = pa.table({"prompt_tokens": [1], "output_tokens": [2], "model": ["m"], "temperature": [0.5]})
    path = trace(b"", f"t{suffix}")
    if suffix == ".parquet":
        pq.write_table(table, path)
    elif suffix == ".csv":
        arrow_csv.write_csv(table, path)
    else:
        trace("".join(json.dumps(row) + "\n" for row in table.to_pylist()), f"t{suffix}")
    assert read_requests(path).unused_columns == ("model", "temperature")


@pytest.mark.parametrize(
    ("column", "values", "at_fault"),
    [
        ("arrival_s", ["0", "1e300", "1e9", "1e8"], "lines 3, 4"),
        ("arrival_s", ["1e300", "1e300"], "lines 2, 3"),
        ("arrival_s", ["5", "1e8", "1e20"], "line 4"),
        ("arrival_s", ["1.7e9", "1.7e9", "1.9e9"], "line 4"),
        ("timestamp_ms", ["1.7e12", "1.7e12", "1e300"], "line 4"),
        ("timestamp_ms", ["0", "1e12"], "line 3"),
        ("timestamp", ["1.7e12", "1.7e12"], "lines 2, 3"),
        ("timestamp", ["1.7e18", "1.7e18"], "lines 2, 3"),
        ("timestamp", ["1980-01-01 00:00:00", "2024-01-01 00:00:00"], "line 3"),
    ],
)
def test_arrivals_too_far_from_the_first_are_named(trace, column, values, at_fault):  # noqa: F811
    (fault,) = faults_of(trace(f"{column},{HEAD}" + "".join(f"{value},1,1\n" for value in values)))
    assert fault.startswith(f"{at_fault}, column {column}: too l")


@pytest.mark.parametrize("values", [["0", "1e8"], ["1700000000", "1790000000"], ["99999999", "2"], ["1e8", "2e8"]])
def test_arrivals_within_three_years_are_read(trace, values):  # noqa: F811
    read = read_requests(trace(f"arrival_s,{HEAD}" + "".join(f"{value},1,1\n" for value in values)))
    assert read.arrival_s.max() <= 1e8


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_another_separator_than_a_comma_is_named(trace, separator):  # noqa: F811
    lines = [separator.join(row) for row in (["arrival_s", "prompt_tokens", "output_tokens"], ["0.5", "3", "4"])]
    (fault,) = faults_of(trace("\n" + "\n".join(lines) + "\n"))
    assert fault.startswith("line 2: fields are separated by ")
    assert "allowed: fields separated by commas" in fault


@pytest.mark.parametrize(
    ("labels", "numbered"),
    [
        (["3", "-1", "", "3"], [3, -1, -1, 3]),
        (["a", "-1", "-1", "a"], [0, -1, -1, 0]),
        (["-1", "b", "", "7"], [-1, 0, -1, 1]),
        (["18446744073709551615", "18446744073709551614", "-1", ""], [0, 1, -1, -1]),
    ],
)
def test_a_group_is_a_number_or_a_name_and_minus_one_is_none(trace, labels, numbered):  # noqa: F811
    read = read_requests(trace(f"group,{HEAD}" + "".join(f"{label},1,1\n" for label in labels)))
    assert read.group.tolist() == numbered


@pytest.mark.parametrize("others", [["0", "1"], ["a", "b"]])
def test_a_group_is_no_other_number(trace, others):  # noqa: F811
    labels = [*others, "-2", "1.5", "-0.5"]
    faults = faults_of(trace(f"group,{HEAD}" + "".join(f"{label},1,1\n" for label in labels)))
    assert [fault.split(";")[0] for fault in faults] == [
        "line 4, column group: negative",
        "lines 5, 6, column group: not a whole number",
    ]


def test_ids_and_groups(trace):  # noqa: F811
    faults = faults_of(trace("id,group,prompt_tokens,output_tokens\na,-2,1,1\nb,0,1,1\na,0,1,1\n,0,1,1\n"))
    assert [fault.split(";")[0] for fault in faults] == [
        "line 2, column group: negative",
        "line 5, column id: no value",
        "lines 2, 4, column id: stands more than once",
    ]


def test_an_id_twice_in_a_large_trace(trace):  # noqa: F811
    rows = [f"r{number},1,1" for number in range(2_000)]
    (fault,) = faults_of(trace("id,prompt_tokens,output_tokens\n" + "\n".join([*rows, "r1999,1,1"]) + "\n"))
    assert fault.startswith("lines 2001, 2002, column id: stands more than once; given 'r1999'")


def test_json_lines(trace):  # noqa: F811
    good = '{"prompt_tokens": 1, "output_tokens": 2}'
    lines = [
        good,
        '{"prompt_tokens": 1, ',
        "[1, 2]",
        '{"prompt_tokens": true, "output_tokens": [2]}',
        "{}",
        good,
        '{"prompt',
    ]
    faults = faults_of(trace("\n".join(lines), "t.jsonl"))
    assert faults[0].startswith("lines 2, 7: not JSON (the last line is cut off)")
    assert faults[1].startswith("line 3: not a JSON object; given 'list'")
    assert {fault.split(";")[0] for fault in faults[2:]} == {
        "line 5, column prompt_tokens: no value",
        "line 4, column prompt_tokens: not a number",
        "line 5, column output_tokens: no value",
        "line 4, column output_tokens: not a number",
    }


def test_json_numbers_may_be_text_and_ids_of_several_types(trace):  # noqa: F811
    lines = [
        {"id": 1, "prompt_tokens": "12", "output_tokens": 3},
        {"id": "x", "prompt_tokens": 4.0, "output_tokens": 5},
    ]
    read = read_requests(trace("".join(json.dumps(line) + "\n" for line in lines), "t.jsonl"))
    assert read.prompt_tokens.tolist() == [12, 4]
    assert read.ids is not None
    assert read.ids.to_pylist() == ["1", "x"]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"", "t.csv", "is empty"),
        (b" \n\n", "t.jsonl", "is empty"),
        (HEAD.encode(), "t.csv", "holds no request"),
        (b"prompt_tokens,output_tokens", "t.csv", "holds no request"),
        (b"prompt_tokens,prompt_tokens,output_tokens\n1,2,3\n", "t.csv", "stands twice"),
        (HEAD.encode() + b"1,2\n\xff,3\n", "t.csv", "line 3: not UTF-8"),
        (b"x", "t.parquet", "damaged or not Parquet"),
        (in_format(".parquet")[:-30], "t.parquet", "damaged or not Parquet"),
        (in_format(".csv.gz")[:-9], "t.csv.gz", "cut off gzip"),
        (b"plain", "t.jsonl.gz", "gzip"),
        (gzip.compress(b""), "t.csv.gz", "is empty"),
        (b"x", "t.xlsx", "suffix"),
        (b"x", "t.json", "did you mean '.jsonl'"),
        (b"x", "trace", "suffix"),
    ],
)
def test_files_that_cannot_be_read(trace, content, name, message):  # noqa: F811
    assert message in "\n".join(faults_of(trace(content, name)))


def test_files_that_are_not_there(tmp_path, trace):  # noqa: F811
    trace("x", "trace.csv")
    assert "no such file (did you mean 'trace.csv'?)" in faults_of(str(tmp_path / "tracee.csv"))[0]
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in faults_of(str(tmp_path / "folder.csv"))[0]


@pytest.mark.parametrize("column", ["prompt_tokens", "output_tokens", "arrival_s", "priority"])
@pytest.mark.parametrize("other", ["7.0", "7", "NaN", "1e400", '"7"'])
@pytest.mark.parametrize("first", [True, False])
def test_a_truth_among_numbers_is_no_number(trace, column, other, first):  # noqa: F811
    """Arrow would take it as 1, or not, by what stands beside it."""
    values = ("true", other) if first else (other, "true")
    row = {"prompt_tokens": "4", "output_tokens": "7", "arrival_s": "0"}
    lines = ["{" + ", ".join(f'"{k}": {v}' for k, v in (row | {column: value}).items()) + "}" for value in values]
    faults = faults_of(trace("\n".join(lines) + "\n", "trace.jsonl"))
    places = (f"line {1 if first else 2},", "lines 1, 2,")
    assert any(fault.startswith(places) and "true" in fault for fault in faults), faults


def test_a_last_line_without_an_end_is_mentioned(trace):  # noqa: F811
    assert any("cut off" in note for note in read_requests(trace(HEAD + "1,2\n3,4")).notes)
    (fault,) = faults_of(trace(HEAD + "1,2\n3"))
    assert fault.startswith("line 3: wrong number of fields")


def test_parquet_of_odd_types(tmp_path):
    columns = {
        "id": pa.array([1, 2]),
        "arrival": pa.array([1, 2], pa.timestamp("ns", "Europe/Paris")),
        "prompt_tokens": pa.array(["3", "4"]).dictionary_encode(),
        "output_tokens": pa.array([3, 4], pa.decimal128(9, 0)),
        "group": pa.array([b"x", b"y"]),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    read = read_requests(tmp_path / "t.parquet")
    assert read.prompt_tokens.tolist() == [3, 4]
    assert read.group.tolist() == [0, 1]
    nested = {"prompt_tokens": [[1], [2]], "output_tokens": [{"a": 1}, None], "id": [[1], [2]], "group": [[1], [2]]}
    pq.write_table(pa.table(nested), tmp_path / "u.parquet")
    assert len(faults_of(str(tmp_path / "u.parquet"))) == 5


SUFFIXES = (".parquet", ".csv", ".csv.gz", ".jsonl", ".jsonl.gz")
WHOLE = {suffix: in_format(suffix) for suffix in SUFFIXES}


@settings(max_examples=400)
@given(st.sampled_from(SUFFIXES), st.data())
def test_damaged_bytes_are_bad_input_or_a_sound_trace(tmp_path_factory, suffix, data):
    content = bytearray(WHOLE[suffix])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content)))
        piece = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"\n", b"\r", b'"', b",", b"{", b"}", b"\x00", b"9e9"])
        )
        content[at : at + data.draw(st.integers(0, 3))] = piece
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    path = tmp_path_factory.getbasetemp() / f"damaged{suffix}"
    path.write_bytes(content)
    assert_sound_or_bad_input(path)


@settings(max_examples=300)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                name: st.none()
                | st.booleans()
                | st.integers()
                | st.floats()
                | st.text(max_size=4)
                | st.just("\ud800")
                | st.just([1])
                for name in ("id", "arrival", "prompt_tokens", "output_tokens", "group", "priority")
            },
        ),
        max_size=5,
    )
)
def test_any_json_is_bad_input_or_a_sound_trace(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert_sound_or_bad_input(path)


def assert_sound_or_bad_input(path):
    try:
        read = read_requests(path)
    except BadInput as error:
        assert all(fault.file == str(path) for fault in error.faults)  # noqa: PT017
        return
    assert len(read) >= 1
    assert (read.prompt_tokens >= 1).all()
    assert (read.output_tokens >= 1).all()
    assert np.isfinite(read.arrival_s).all()
    assert (np.diff(read.arrival_s) >= 0).all()
    assert read.arrival_s[0] >= 0
    assert (read.group >= -1).all()


def test_a_missing_column_hides_no_fault_of_the_others(trace):  # noqa: F811
    found = faults_of(trace("prompt_token,output_tokens,arival_s,priority\n1,-2,0,x\n2,3,1,4\n"))
    assert [next(word for word in ("prompt_tokens", "arrival_s", "output_tokens", "priority") if word in fault)
            for fault in found] == ["prompt_tokens", "arrival_s", "output_tokens", "priority"]  # fmt: skip
    assert "line 2" in found[2]
    assert "negative" in found[2]
    assert "not a number" in found[3]

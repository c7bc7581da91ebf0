"""Request traces: every format and naming that is read, and what is said of every fault."""

import gzip
import json
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from rollsim.traces.errors import BadInput
from rollsim.traces.examples import EXAMPLES, example_path, generate
from rollsim.traces.request_columns import ALIASES
from rollsim.traces.requests import read_requests


@pytest.fixture
def trace(tmp_path):
    """Write a trace file and return its path."""

    def write(content: str | bytes, name: str = "t.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def faults_of(path: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read_requests(path)
    return [str(fault).removeprefix(f"{path}: ") for fault in caught.value.faults]


COLUMNS = {
    "request_id": ["a", "b", "c", "d"],
    "arrival_s": [0.5, 0.0, 2.0, 0.0],
    "prompt_tokens": [7, 5, 5, 3],
    "output_tokens": [10, 20, 30, 40],
    "group_id": [None, 1, 1, None],
    "priority": [0, 2, 0, -1],
}


def in_format(suffix: str) -> bytes:
    table = pa.table(COLUMNS)
    sink = pa.BufferOutputStream()
    if suffix == ".parquet":
        pq.write_table(table, sink)
    elif suffix.startswith(".csv"):
        arrow_csv.write_csv(table, sink)
    else:
        sink.write("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode())
    content = sink.getvalue().to_pybytes()
    return gzip.compress(content) if suffix.endswith(".gz") else content


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz", ".jsonl", ".jsonl.gz"])
def test_every_format_gives_the_same_trace(trace, suffix):
    read = read_requests(trace(in_format(suffix), f"t{suffix}"))
    assert read.ids is not None
    assert read.ids.to_pylist() == ["b", "d", "a", "c"]
    np.testing.assert_array_equal(read.arrival_s, [0.0, 0.0, 0.5, 2.0])
    np.testing.assert_array_equal(read.prompt_tokens, [5, 3, 7, 5])
    np.testing.assert_array_equal(read.output_tokens, [20, 40, 10, 30])
    np.testing.assert_array_equal(read.group, [1, -1, -1, 1])
    np.testing.assert_array_equal(read.priority, [2, -1, 0, 0])
    assert [read.arrival_s.dtype, read.prompt_tokens.dtype, read.group.dtype] == [np.float64, np.int64, np.int64]
    first = {".parquet": "row 2", ".csv": "line 3", ".jsonl": "line 2"}["." + suffix.split(".")[1]]
    assert read.place(0) == f"{first}, id 'b'"
    assert any("sorted" in note for note in read.arrival_notes)
    assert read.content_hash == read_requests(trace(in_format(".csv"), "u.csv")).content_hash


@pytest.mark.parametrize("meaning", ["prompt_tokens", "output_tokens"])
def test_every_alias_is_understood(trace, meaning):
    other = "output_tokens" if meaning == "prompt_tokens" else "prompt_tokens"
    for alias in ALIASES[meaning]:
        for spelled in (alias, alias.upper(), alias.title().replace("_", ""), alias.replace("_", " ")):
            read = read_requests(trace(f"{spelled},{other}\n3,4\n"))
            assert getattr(read, meaning).tolist() == [3]
            assert getattr(read, other).tolist() == [4]


def test_no_alias_has_two_meanings():
    plain = [alias.replace("_", "") for aliases in ALIASES.values() for alias in aliases]
    assert len(plain) == len(set(plain))


def test_without_arrivals_everything_arrives_at_once(trace):
    read = read_requests(trace('{"input_length": 3, "output_length": 4, "text": "never read"}\n', "t.jsonl"))
    assert read.arrival_s.tolist() == [0.0]
    assert read.ids is None
    assert read.place(0) == "line 1"
    assert any("arrive at 0 s" in note for note in read.arrival_notes)


@pytest.mark.parametrize(
    ("header", "values", "seconds"),
    [
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            ["2023-11-16 18:17:03.9799600", "2023-11-16 18:17:04.0319600"],
            0.052,
        ),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            ["2024-05-10 00:00:00.009930+00:00", "2024-05-10T01:00:00+01:00"],
            None,
        ),
        ("timestamp,input_length,output_length", ["0", "52"], 0.052),
        ("timestamp_ms,input_tokens,output_tokens", ["0", "52"], 0.052),
        ("timestamp,prompt_tokens,output_tokens", ["0", "0.052"], 0.052),
        ("arrival,prompt_tokens,output_tokens", ["1700000000.25", "1700000000.302"], 0.052),
    ],
)
def test_times_of_other_programs(trace, header, values, seconds):
    read = read_requests(trace(f"{header}\n{values[0]},10,5\n{values[1]},11,6\n"))
    if seconds is None:  # the second stands 9.93 ms before the first once both are on UTC
        assert read.prompt_tokens.tolist() == [11, 10]
        seconds = 0.00993
    assert read.arrival_s == pytest.approx([0.0, seconds], abs=2e-7)


def test_group_names_are_numbered_and_of_one_prompt_length(trace):
    read = read_requests(trace("group,prompt_tokens,output_tokens\nx,5,1\ny,6,1\nx,5,2\n,9,2\n"))
    assert read.group.tolist() == [0, 1, 0, -1]
    (fault,) = faults_of(trace("group,prompt_tokens,output_tokens\nx,5,1\ny,6,1\nx,4,2\n,9,2\n"))
    assert fault.startswith(
        "line 4, column prompt_tokens: prompt not as long as the first of its group (1 of 2 groups)"
    )


def test_spaces_quotes_byte_order_mark_and_blank_lines_do_no_harm(trace):
    content = '\ufeff prompt_tokens , "output_tokens"\r\n\r\n 3 ,"4"\r\n+5,6.0\r\n   \r\n7,1e2\r\n'
    read = read_requests(trace(content))
    assert read.prompt_tokens.tolist() == [3, 5, 7]
    assert read.output_tokens.tolist() == [4, 6, 100]
    assert read.rows.tolist() == [3, 4, 6]


def test_a_selection_is_a_trace_of_its_own():
    whole = read_requests("example:grpo")
    part = whole.select(whole.group < 4)
    assert len(part) == 32
    assert part.content_hash != whole.content_hash
    assert part.content_hash == whole.select(np.arange(32)).content_hash


def test_a_rollouts_table_is_a_trace(tmp_path):
    from rollsim.traces.schema import build

    path = tmp_path / "rollouts.parquet"
    columns = {"prompt_tokens": np.array([3, 4]), "output_tokens": np.array([5, 6]), "t_submit_s": np.array([1.0, 2.0])}
    pq.write_table(build("rollouts", columns), path)
    read = read_requests(path)
    assert read.arrival_s.tolist() == [1.0, 2.0]
    assert read.ids is None
    assert read.group.tolist() == [-1, -1]
    assert "column 'sample_id' is empty and not used" in read.notes


def test_a_line_per_request_is_fast(tmp_path):
    count = 65_536
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "arrival_s": np.sort(rng.random(count)),
            "prompt_tokens": np.full(count, 512),
            "output_tokens": rng.integers(1, 9_999, count),
            "group_id": np.arange(count) // 8,
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    arrow_csv.write_csv(table, tmp_path / "t.csv")
    lines = (json.dumps(row) for row in table.to_pylist())
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    for name, limit_s in (("t.parquet", 0.1), ("t.csv", 0.2), ("t.jsonl", 0.2)):
        spent = []
        for _ in range(3):
            begin = time.process_time()
            assert len(read_requests(tmp_path / name)) == count
            spent.append(time.process_time() - begin)
        assert min(spent) < limit_s, name


@pytest.mark.parametrize("name", ["grpo", "online"])
def test_the_shipped_examples_are_what_the_generator_makes(name, tmp_path):
    generate.main(tmp_path)
    assert read_requests(f"example:{name}").content_hash == read_requests(tmp_path / EXAMPLES[name]).content_hash
    assert example_path(name).stat().st_size < 60_000
    with pytest.raises(BadInput, match=f"did you mean '{name}'"):
        read_requests(f"example:{name}x")


def test_our_own_trace_is_what_a_real_model_did():
    read = read_requests("example:arithmetic")
    assert len(read) == 1920
    assert (np.bincount(read.group) == 8).all()
    assert read.unused_columns == ()
    assert read.output_tokens.max() == 512
    assert (read.output_tokens[read.truncated] == 512).all()
    rewards = read.reward.reshape(240, 8)
    assert set(rewards.ravel()) == {0.0, 1.0}
    # A little above half of the groups tells nothing, nearly all because no response was right.
    assert (rewards.std(axis=1) > 0).sum() == 117
    assert (rewards.sum(axis=1) == 8).sum() == 0


@pytest.mark.parametrize("name", ["azure2023_code", "azure2023_conv", "mooncake_conversation"])
def test_published_traces_are_read(shared_data, name):
    read = read_requests(shared_data / "traces" / f"{name}.csv.gz")
    assert len(read) == {"azure2023_code": 8_819, "azure2023_conv": 19_366, "mooncake_conversation": 12_031}[name]
    assert 3_400 < read.arrival_s[-1] < 3_700


ENDED_CSV = "isl,osl,is_truncated,reward\n1,2,True,0.5\n1,2,false,\n1,2,,-1\n1,2,1,true\n"
ENDED_JSON = """
{"isl": 1, "osl": 2, "is_truncated": true, "reward": 0.5}
{"isl": 1, "osl": 2, "is_truncated": false}
{"isl": 1, "osl": 2, "is_truncated": null, "reward": -1}
{"isl": 1, "osl": 2, "is_truncated": 1, "reward": true}
"""


@pytest.mark.parametrize(("name", "content"), [("t.csv", ENDED_CSV), ("t.jsonl", ENDED_JSON)])
def test_rewards_and_what_was_truncated(trace, name, content):
    read = read_requests(trace(content, name))
    np.testing.assert_array_equal(read.truncated, [True, False, False, True])
    np.testing.assert_array_equal(read.reward, [0.5, np.nan, -1.0, 1.0])
    late = read_requests(trace("isl,osl,is_truncated,reward,arrival_s\n1,2,1,7,9\n1,2,0,8,0\n", "late.csv"))
    assert (late.truncated.tolist(), late.reward.tolist()) == ([False, True], [8.0, 7.0]), "sorted with their request"
    part = read.select(np.array([3, 0]))
    assert (part.truncated.tolist(), part.reward.tolist()) == ([True, True], [1.0, 0.5])


def test_a_trace_need_not_say_how_responses_ended(trace):
    plain = read_requests(trace("isl,osl\n1,2\n"))
    assert plain.truncated is None
    assert plain.reward is None
    told = read_requests(trace("isl,osl,reward,truncated\n1,2,1,0\n", "u.csv"))
    assert told.content_hash != plain.content_hash
    other = read_requests(trace("isl,osl,reward,truncated\n1,2,0,0\n", "v.csv"))
    assert other.content_hash != told.content_hash
    empty = read_requests(trace("isl,osl,reward\n1,2,\n", "w.csv"))
    assert empty.reward is None
    assert any("'reward' is empty" in note for note in empty.notes)


def test_rewards_and_flags_that_are_none(trace):
    found = faults_of(trace("isl,osl,reward,truncated\n1,2,good,2\n1,2,inf,maybe\n1,2,0.5,no\n"))
    assert [fault.split("; allowed")[0] for fault in found] == [
        "lines 2, 3, 4, column truncated: not a flag; given ('2', 'maybe', 'no')",
        "lines 2, 3, column reward: not a finite number; given ('good', 'inf')",
    ]


def test_a_run_folder_is_its_rollouts(tmp_path, trace):
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(BadInput, match=r"is a folder; allowed: a file, or .*rollouts\.parquet"):
        read_requests(run)
    pq.write_table(
        pa.table({"prompt_tokens": [5], "output_tokens": [7], "status": ["in_flight"]}), run / "rollouts.parquet"
    )
    read = read_requests(run)
    assert (read.path, read.output_tokens.tolist(), read.unfinished.tolist()) == (str(run), [7], [True])


def test_states_in_which_a_length_is_not_final(trace):
    read = read_requests(trace("isl,osl,status\n1,2,FAILED\n1,2,completed\n1,2,\n1,2,200\n1,2,in_flight\n"))
    assert read.unfinished.tolist() == [True, False, False, False, True]
    assert read_requests(trace('{"isl": 1, "osl": 2, "status": 200}', "t.jsonl")).unfinished.tolist() == [False]
    assert "not a name" in faults_of(trace('{"isl": 1, "osl": 2, "status": {"is": "x"}}', "u.jsonl"))[0]

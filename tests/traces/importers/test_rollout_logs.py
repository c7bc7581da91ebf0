"""Trajectories of each framework's log, against what the small logs of `samples` hold, by hand."""

import json
import pickle
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rollsim.traces.errors import BadInput
from rollsim.traces.importers.draft import Options
from rollsim.traces.importers.imported import ImportedLog
from rollsim.traces.importers.log import read_log
from rollsim.traces.kpis import kpis
from rollsim.traces.staleness import staleness
from tests.traces.importers import samples

PICKLE = Options(allow_pickle=True)


def rows(log: ImportedLog, *names: str) -> list[tuple]:
    assert log.rollouts is not None
    return [tuple(row.values()) for row in log.rollouts.select(list(names)).to_pylist()]


def settings(log: ImportedLog) -> str:
    return " ".join(entry.setting for entry in log.missing)


@pytest.mark.parametrize("name", samples.LOGS)
def test_no_text_is_kept_and_nothing_is_damaged(tmp_path, name):
    log = read_log(samples.LOGS[name](tmp_path), options=PICKLE)
    assert log.framework == {"mooncake": "table", "azure": "table"}.get(name, name)
    assert log.fault_count == (3 if name == "verl" else 0)
    assert json.loads(json.dumps(log.document(), allow_nan=False))["framework"] == log.framework


def test_verl_groups_by_uid_or_prompt(tmp_path):
    log = read_log(samples.verl(tmp_path))
    assert rows(log, "step_trained", "group_id", "reward") == [
        (1, 0, 1.0), (1, 0, 1.0), (1, 1, 1.0), (1, 1, 1.0), (2, 2, 0.0), (2, 2, 0.0), (2, 3, 0.0),
    ]  # fmt: skip
    assert log.rollouts["output_tokens"].null_count == 7
    assert "--tokenizer" in settings(log)
    assert "trainer.rollout_data_dir" not in settings(log)
    assert any("validation" in line for line in log.found)
    (fault,) = log.faults
    assert fault.message.startswith("a row without uid among rows with it (mixed versions)")
    assert (fault.message[-7:], fault.place) == ("3 times", "dump/2.jsonl line 1 and 2 more")


def test_verl_counts_with_a_tokenizer(tmp_path):
    """A tokenizer of words: `4` is one token, and `2 + 2` three, of a limit of three."""
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"2": 0, "+": 1, "4": 2, "a": 3, "b": 4}, unk_token="4"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    log = read_log(samples.verl(tmp_path / "log"), options=Options(tokenizer=tmp_path / "tokenizer.json"))
    assert rows(log, "prompt_tokens", "output_tokens", "is_truncated", "max_output_tokens")[0] == (3, 1, False, 3)
    assert any("encoded again" in line for line in log.derived)
    with pytest.raises(BadInput, match="--tokenizer"):
        read_log(tmp_path / "log", options=Options(tokenizer=tmp_path / "absent.json"))


def test_trl_counts_chat_messages(tmp_path):
    """A tokenizer of words; what a message says is counted, its template is not."""
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    chat = [[{"role": "user", "content": "a b a"}, {"role": "assistant", "content": "b"}]]
    table = pa.table({"step": [1], "prompt": chat, "completion": ["a b"], "right": [1.0]})
    pq.write_table(table, tmp_path / "completions_00001.parquet")
    log = read_log(tmp_path / "completions_00001.parquet", options=Options(tokenizer=tmp_path / "tokenizer.json"))
    assert rows(log, "prompt_tokens", "output_tokens") == [(4, 2)]


def test_areal_joins_sessions_to_samples(tmp_path):
    """Task 7 is joined, 8 has no session, 9 no sample; times count from the first submission."""
    log = read_log(samples.areal(tmp_path))
    names = ("sample_id", "group_id", "output_tokens", "reward", "version_start", "t_submit_s", "t_end_s", "fate")
    assert rows(log, *names) == [
        ("7:0", 7, 20, 0.0, 3, 0.0, 7.0, "undecided"),
        ("7:1", 7, 20, 1.0, 3, 2.0, None, "undecided"),
        ("8/0", 8, 20, 0.0, 3, None, None, "undecided"),
        ("9:0", 9, None, None, None, 0.0, None, "discarded"),
    ]
    kinds = log.tables["segments"].select(["sample_id", "kind", "t0_s", "t1_s"]).to_pylist()
    assert [tuple(row.values()) for row in kinds] == [
        ("7:0", "generate", 1.0, 3.0), ("7:0", "generate", 4.0, 7.0), ("7:0", "reward", 7.0, 7.5),
        ("7:0", "tool", 3.0, 4.0),
    ]  # fmt: skip
    assert log.facts["zero_s"] == 1000.0
    assert [tuple(row.values()) for row in log.tables["spans"].to_pylist()] == [
        ("traces-r0 compute", "train_step", 2.0, 2.5)
    ]


def test_areal_does_not_join_what_does_not_match(tmp_path):
    folder = samples.areal(tmp_path)
    (folder / "session_tracer/sessions-r1.jsonl").unlink()
    log = read_log(folder)
    assert {row[0] for row in rows(log, "sample_id")} == {"7/0", "7/1", "8/0", "7:0", "9:0"}
    assert any("fewer sessions than samples" in fault.message for fault in log.faults)


def test_areal_samples_that_were_not_dumped_leave_gaps(tmp_path):
    """AReaL does not write samples that end in a tool's tokens; prompts have version -1; evaluation is apart."""
    folder = samples.areal(tmp_path)
    row = {"task_id": 7, "sample_idx": 1, "seqlen": 9, "prompt_len": 4, "head_version": -1, "tail_version": 5}
    samples.jsonl(folder / "rollout/4/7.jsonl", [row | {"reward": 2.0}])
    samples.jsonl(folder / "eval-rollout/4/3.jsonl", [row | {"task_id": 3, "reward": 2.0}])
    log = read_log(folder)
    names = ("sample_id", "output_tokens", "reward", "version_start", "version_end", "t_submit_s")
    assert rows(log, *names)[0] == ("7:1", 5, 2.0, None, 5, 2.0)
    assert {row[0] for row in rows(log, "sample_id")} == {"7:1", "7:0", "8/0", "9:0"}
    assert log.faults == ()
    assert any("evaluation" in line for line in log.found)


@pytest.mark.parametrize("zipped", [True, False])
def test_slime_tells_generated_tokens_from_those_of_tools(tmp_path, zipped):
    log = read_log(samples.slime(tmp_path, zipped=zipped), options=PICKLE)
    names = ("prompt_tokens", "output_tokens", "env_tokens", "is_truncated", "version_start", "version_end", "t_end_s")
    assert rows(log, *names) == [(8, 9, 3, False, 3, 4, 4.0), (8, 12, 0, True, 3, 4, None)]
    assert rows(log, "sample_id", "group_id", "step_trained", "reward_s") == [("6/8", 2, 6, 1.0), ("6/9", 2, 6, None)]


def test_a_pickle_is_opened_on_request_and_runs_nothing(tmp_path):
    with pytest.raises(BadInput, match="--allow-pickle"):
        read_log(samples.slime(tmp_path / "log"))

    class Evil:
        def __reduce__(self):
            return subprocess.check_call, (["touch", str(tmp_path / "ran")],)

    folder = samples.slime(tmp_path / "evil")
    (folder / "rollout_7.pt").write_bytes(pickle.dumps({"rollout_id": 7, "samples": [Evil()]}))
    log = read_log(folder, options=PICKLE)
    assert not (tmp_path / "ran").exists()
    (fault,) = log.faults
    assert "subprocess.check_call" in str(fault.given)
    assert len(log.rollouts) == 2


def word(text: str) -> bytes:
    return b"X" + len(text).to_bytes(4, "little") + text.encode()


def test_slime_tensors_are_passed_over(tmp_path):
    """What only a tensor needs is stood in for, as `torch.save` writes it; the rest of the dump is read."""
    storage = b"(" + word("storage") + b"ctorch\nFloatStorage\n" + word("0") + word("cpu") + b"K\x03tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00K\x03\x85K\x01\x85\x89N" + b"tR"
    sample = b"}(" + word("index") + b"K\x05" + word("response_length") + b"K\x02" + word("logs") + tensor + b"u"
    dump = b"\x80\x02}(" + word("rollout_id") + b"K\x06" + word("samples") + b"]" + sample + b"au."
    (tmp_path / "rollout_6.pt").write_bytes(dump)
    log = read_log(tmp_path, options=PICKLE)
    assert (rows(log, "sample_id", "output_tokens"), log.faults) == ([("6/5", 2)], ())


def test_prime_rl_counts_calls_turns_and_what_tools_added(tmp_path):
    """The second prompt of 22 tokens holds the first of 10, its answer of 5, and 7 of the tool."""
    log = read_log(samples.prime_rl(tmp_path))
    names = ("sample_id", "num_turns", "prompt_tokens", "output_tokens", "env_tokens", "is_truncated", "fate")
    assert rows(log, *names) == [
        ("e1/0", 2, 10, 11, 7, True, "trained"), ("e2/0", 1, 10, 5, 0, False, "discarded"),
    ]  # fmt: skip
    times = ("t_submit_s", "t_start_s", "t_end_s", "t_final_s", "gen_s", "tool_s", "reward_s")
    assert rows(log, *times)[0] == (0.0, 1.0, 8.0, 8.5, 5.0, 2.0, 0.5)
    assert rows(log, "reward", "group_id", "step_trained") == [(1.1, 0, 4), (1.1, 0, None)]
    assert log.steps["ended_s"].to_pylist() == [30.0, 40.0]
    assert staleness(log.rollouts).mean == 2.0


def test_prime_rl_times_that_were_not_taken(tmp_path):
    """verifiers writes them as 0.0; they are no times before all others."""
    folder = samples.prime_rl(tmp_path)
    for file in folder.rglob("traces.jsonl"):
        file.write_text(file.read_text().replace("1008.5", "0.0"))
    log = read_log(folder)
    assert log.faults == ()
    assert rows(log, "t_final_s", "reward_s", "t_end_s")[0] == (None, None, 8.0)


def test_nemo_rl_counts_the_loss_mask(tmp_path):
    log = read_log(samples.nemo_rl(tmp_path))
    names = ("prompt_tokens", "output_tokens", "env_tokens", "num_turns", "group_id", "reward")
    assert rows(log, *names) == [(3, 6, 0, 1, 0, 1.0), (3, 4, 2, 2, 0, 0.0), (3, 6, 0, 1, 1, 1.0)]


def test_trl_sums_rewards_and_says_so(tmp_path):
    log = read_log(samples.trl(tmp_path))
    assert rows(log, "step_trained", "group_id", "reward") == [(3, 0, 1.25), (3, 0, 0.0)]
    assert any("without weights (right, short)" in line for line in log.derived)


def test_vllm_bench_times_of_calls(tmp_path):
    log = read_log(samples.vllm_bench(tmp_path))
    assert rows(log, "status", "output_tokens") == [("finished", 3), ("finished", 4), ("failed", 0)]
    ends = np.array([row[0] for row in rows(log, "t_end_s")], float)
    assert ends[:2] == pytest.approx([0.8, 2.3])
    numbers = kpis(log.tables)
    assert numbers.first_token_s.mean == pytest.approx(0.75)
    assert numbers.per_output_token_s.mean == pytest.approx((0.15 + 0.1) / 2)


def test_a_real_result_of_vllm_bench(repository):
    """Our KPIs of its requests are the means that vLLM itself wrote beside them."""
    path = repository / "tests/data/vllm_bench_result.json"
    log, theirs = read_log(path), json.loads(path.read_text())
    assert (log.framework, log.faults) == ("vllm-bench", ())
    ours = kpis(log.tables)
    assert ours.first_token_s.mean == pytest.approx(theirs["mean_ttft_ms"] / 1e3)
    assert ours.per_output_token_s.mean == pytest.approx(theirs["mean_tpot_ms"] / 1e3)
    assert ours.completion_s.mean == pytest.approx(np.mean(theirs["latencies"]))
    assert (ours.prompt_tokens, ours.output_tokens) == (theirs["total_input_tokens"], theirs["total_output_tokens"])
    assert ours.makespan_s == pytest.approx(theirs["duration"], abs=0.02)


def test_guidellm_requests_by_outcome(tmp_path):
    log = read_log(samples.guidellm(tmp_path))
    names = ("sample_id", "status", "t_submit_s", "t_start_s", "t_first_token_s", "t_end_s", "cached_tokens")
    assert rows(log, *names) == [("q", "finished", 0.0, 0.5, 1.0, 3.0, 2), ("z", "failed", 0.0, 0.5, 1.0, 3.0, 2)]


def test_traces_of_others(tmp_path):
    """Mooncake counts milliseconds, Azure has dates."""
    names = ("prompt_tokens", "output_tokens", "t_submit_s")
    assert rows(read_log(samples.mooncake(tmp_path / "m")), *names) == [(6758, 500, 0.0), (6758, 490, 3.0)]
    assert rows(read_log(samples.azure(tmp_path / "a")), *names) == [(4808, 10, 0.0), (3180, 8, 0.5)]


def test_a_table_with_columns_of_its_own(tmp_path):
    (tmp_path / "t.csv").write_text("who,n_in,n_out,ok,state\na,3,4,1,finished\nb,5,nan,0,aborted\n")
    options = Options(columns={"prompt_tokens": "n_in", "output_tokens": "n_out", "reward": "ok", "status": "state"})
    log = read_log(tmp_path / "t.csv", "table", options)
    assert rows(log, "prompt_tokens", "output_tokens", "reward", "status") == [
        (3, 4, 1.0, "finished"), (5, None, 0.0, "aborted"),
    ]  # fmt: skip
    with pytest.raises(BadInput, match="did you mean 'n_in'"):
        read_log(tmp_path / "t.csv", "table", Options(columns={"prompt_tokens": "nin"}))


def test_published_traces(shared_data):
    for name, count in (("azure2023_code", 8819), ("azure2023_conv", 19366), ("mooncake_conversation", 12031)):
        log = read_log(shared_data / "traces" / f"{name}.csv.gz")
        assert (log.framework, len(log.rollouts), log.faults) == ("table", count, ())
        assert log.rollouts["t_submit_s"][0].as_py() == 0.0

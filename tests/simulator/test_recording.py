"""Recordings are read, every fault of a damaged one is told at once, and a comparison shows where two sides part."""

import json
import tarfile
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest

from rollsim.simulator.judge import replay_recording
from rollsim.simulator.recording import parse_recording, read_recordings
from rollsim.traces.errors import BadInput
from tests.golden import ARCHIVE, golden_recordings
from tests.reference.stepped import SteppedReference


@cache
def member(name):
    with tarfile.open(ARCHIVE) as archive:
        return archive.extractfile(f"{name}.json").read()


@pytest.fixture
def document():
    return json.loads(member("16_everything_fcfs"))


def faults_of(document):
    with pytest.raises(BadInput) as caught:
        parse_recording(json.dumps(document).encode(), "a.json")
    return [str(fault) for fault in caught.value.faults]


def replayed(recording):
    return replay_recording(recording, SteppedReference(recording.limits))


# --- reading ---


def test_a_single_file_reads_as_in_the_archive(tmp_path):
    path = tmp_path / "20_ngram_kv_pressure.json"
    path.write_bytes(member("20_ngram_kv_pressure"))
    (recording,) = read_recordings(path)
    assert recording == golden_recordings()["20_ngram_kv_pressure"]
    assert recording.limits.num_speculative_tokens == 3
    assert not recording.is_async


def test_columns_tell_asynchronous_recordings():
    recording = golden_recordings()["async/ASYNC_16_everything_fcfs"]
    assert recording.is_async
    assert recording.limits.async_scheduling


def test_siblings_share_the_prompt_and_what_they_generated_alike():
    sampled = {request.id: request for request in golden_recordings()["04_kv_starved_groups"].requests}
    greedy = {request.id: request for request in golden_recordings()["04b_kv_starved_groups_greedy"].requests}
    assert sampled["r1"].parent == greedy["r1"].parent == "r0"
    assert sampled["r1"].shared_tokens == 204
    assert greedy["r1"].shared_tokens > 204


def test_a_resumed_request_shares_all_of_its_prompt_with_the_one_it_resumes():
    requests = {request.id: request for request in golden_recordings()["09_abort_resume_prefix"].requests}
    resumed = [request for request in requests.values() if request.before_step > 0]
    assert resumed
    for request in resumed:
        assert request.shared_tokens == request.prompt_tokens >= requests[request.parent].prompt_tokens


# --- faults ---


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "line 1, column 1: not JSON"),
        (b'{"rows": [1,\n2', "line 2, column 2: not JSON"),
        (b"\xff\xfe", "byte 0: not UTF-8"),
        (b"[1, 2]", "not a recording; given 'list'"),
        (b"[" * 100_000, "nested too deeply"),
        (b"3", "not a recording"),
    ],
)
def test_what_is_no_recording_at_all_is_told(content, told):
    with pytest.raises(BadInput, match=r"a\.json") as caught:
        parse_recording(content, "a.json")
    assert told in str(caught.value)


def test_missing_and_mistyped_keys_are_told_together(document):
    document["row"] = document.pop("rows")
    del document["result"]
    document["columns"] = "n_ctx_requests"
    told = faults_of(document)
    assert len(told) == 3
    assert any("rows: the key is missing; given 'row'" in fault for fault in told)
    assert any("result: the key is missing" in fault for fault in told)
    assert any("columns: wrong type" in fault for fault in told)


def test_wrong_columns_are_told_with_the_closest_match(document):
    document["columns"][7] = "block_peak"
    (told,) = faults_of(document)
    assert "wrong columns; given 'block_peak'" in told
    assert "did you mean 'blocks_peak'?" in told


def test_faults_of_one_kind_are_told_in_one_line(document):
    for k in range(10):
        document["rows"][k] = [1, 2]
    document["rows"][20][3] = -1
    document["rows"][21][3] = 0.5
    (told,) = faults_of(document)
    assert "rows 0, 1, 2, 3 and 8 more: wrong row" in told
    assert "a list of 14 whole numbers" in told


def test_config_faults(document):
    config = document["config"]
    config["policy"] = "priorty"
    config["block_size"] = 0
    config["num_blocks"] = config.pop("num_gpu_blocks")
    config["num_lookahead_tokens"] = 3
    config["updates"] = [{"after_step": -1, "clear_cache": True}]
    told = "\n".join(faults_of(document))
    assert "config: policy: wrong value; given 'priorty'; allowed: fcfs, priority (did you mean 'priority'?)" in told
    assert "block_size: wrong value; given 0" in told
    assert "num_gpu_blocks: the key is missing; given 'num_blocks'" in told
    assert "num_lookahead_tokens: not modelled; given 3" in told
    assert "config: updates 0: wrong value" in told


def test_request_faults(document):
    requests = document["requests"]
    requests[0]["prompt_tokens"] = 0
    requests[1]["output_tokens"] = "many"
    del requests[2]["group"]
    requests[3] = 7
    requests[5]["id"] = requests[4]["id"]
    told = "\n".join(faults_of(document))
    assert "prompt_tokens of r0: wrong value; given 0; allowed: a whole number from 1 to 2147483647" in told
    assert "output_tokens of r1: wrong value; given 'many'" in told
    assert "group of r2: the key is missing" in told
    assert "requests 3: wrong type; given 7" in told
    assert "requests r4: the id is given twice" in told


def test_relations_between_requests(document):
    resumed = [request for request in document["requests"] if request["resume_of"]]
    resumed[0]["resume_of"] = "r1x"
    resumed[1]["prompt_tokens"] = 1
    group = next(request for request in document["requests"] if request["group"] == "g10" and request["id"] != "r0")
    group["prompt_tokens"] += 1
    told = "\n".join(faults_of(document))
    assert f"resume_of of {resumed[0]['id']}: unknown id; given 'r1x'" in told
    assert f"prompt_tokens of {resumed[1]['id']}: shorter than what it resumes" in told
    assert "a group has one prompt" in told


def test_step_lists_fit_the_rows_and_name_known_requests(document):
    document["prefill_chunks"].pop()
    document["preempted"][4] = ["nobody"]
    document["prefill_chunks"][5] = {"r0": 0}
    document["result"].pop("r0")
    document["result"]["r999"] = {}
    told = "\n".join(faults_of(document))
    assert f"prefill_chunks: wrong length; given 753; allowed: {len(document['rows'])} entries" in told
    assert "preempted step 4: unknown id; given 'nobody'" in told
    assert "prefill_chunks step 5: wrong entry" in told
    assert "result r0: the request is missing" in told
    assert "result r999: unknown id" in told


def test_a_faulty_request_is_still_known_by_its_id(document):
    """Only the request is told, not every place that names it."""
    for request in document["requests"]:
        request["prompt_tokens"] = -1
    (told,) = faults_of(document)
    assert "prompt_tokens of r0, r1, r2, r3 and 79 more: wrong value; given -1" in told


def test_an_id_that_cannot_be_read_makes_no_other_unknown(document):
    document["requests"][2]["id"] = 5
    (told,) = faults_of(document)
    assert "requests: id of number 2: wrong value; given 5" in told


def test_an_unknown_id_is_told_beside_faulty_requests(document):
    document["requests"][0]["output_tokens"] = 0
    resumed = next(request for request in document["requests"] if request["resume_of"])
    resumed["resume_of"] = "r1x"
    told = "\n".join(faults_of(document))
    assert f"resume_of of {resumed['id']}: unknown id; given 'r1x'" in told
    assert "output_tokens of r0: wrong value" in told


def test_a_missing_column_is_told_once(document):
    del document["columns"][3]
    (told,) = faults_of(document)
    assert "columns: wrong columns" in told


@pytest.mark.parametrize("key", ["steps", "preemptions"])
@pytest.mark.parametrize("given", [0, 1e20, 10**20, -1, "754", None])
def test_totals_of_the_head_are_those_of_the_rows(document, key, given):
    total = document[key]
    document[key] = given
    (told,) = faults_of(document)
    assert told.startswith(f"a.json: {key}: wrong total")
    assert f"allowed: {total}, as in the rows" in told
    del document[key]
    assert parse_recording(json.dumps(document).encode(), "a.json").rows


def test_steps_without_requests_are_no_recording(document):
    document["requests"] = []
    told = faults_of(document)
    assert told == ["a.json: requests: no request; allowed: at least one"]


@pytest.mark.parametrize("key", ["spec_steps", "output_ids", "preemptions", "steps"])
def test_an_optional_key_that_is_misspelt_is_not_lost(key):
    document = json.loads(member("20_ngram_kv_pressure"))
    document[f"{key}s"] = document.pop(key, None)
    (told,) = [fault for fault in faults_of(document) if "unknown key" in fault]
    assert f"did you mean '{key}'?" in told


@pytest.mark.parametrize("key", ["spec", "updates", "max_num_scheduled_tokens", "scheduler_reserve_full_isl"])
def test_an_optional_setting_that_is_misspelt_is_not_lost(document, key):
    document["config"][key.replace("s", "ss", 1)] = document["config"].pop(key, None)
    (told,) = [fault for fault in faults_of(document) if "unknown key" in fault]
    assert f"config: {key.replace('s', 'ss', 1)}: unknown key (did you mean '{key}'?)" in told


def test_more_blocks_than_the_prefix_cache_can_follow_are_refused(document):
    document["config"] |= {"max_num_seqs": 65_536, "max_model_len": 16_777_216, "block_size": 1}
    (told,) = faults_of(document)
    assert "config: max_num_seqs: more blocks than can be followed; given 65536" in told
    document["config"]["prefix_caching"] = False
    assert parse_recording(json.dumps(document).encode(), "a.json").limits.max_num_seqs == 20


@pytest.mark.parametrize("junk", [None, True, 0, -1, 1.5, "x", [], [[]], {}, {"a": None}])
def test_junk_in_any_place_is_no_traceback(junk):
    for key in json.loads(member("20_ngram_kv_pressure")):
        for damage in (lambda part: junk, _first_entry(junk), _first_field(junk)):
            document = json.loads(member("20_ngram_kv_pressure"))
            document[key] = damage(document[key])
            _parse_or_fault(document)
    for key in json.loads(member("18_pause_keep_clear"))["config"]:
        document = json.loads(member("18_pause_keep_clear"))
        document["config"][key] = junk
        _parse_or_fault(document)


def _first_entry(junk):
    def damage(part):
        if isinstance(part, list) and part:
            part[0] = junk
        if isinstance(part, dict) and part:
            part[next(iter(part))] = junk
        return part

    return damage


def _first_field(junk):
    def damage(part):
        for entry in part if isinstance(part, list) else part.values() if isinstance(part, dict) else ():
            _first_entry(junk)(entry)
        return part

    return damage


def _parse_or_fault(document):
    with suppress(BadInput):
        parse_recording(json.dumps(document).encode(), "a.json")


def test_all_files_of_an_archive_are_told_at_once(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text("{}")
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "one.json", "one.json")
        archive.add(tmp_path / "two.json", "two.json")
    with pytest.raises(BadInput) as caught:
        read_recordings(tmp_path / "bad.tar.gz")
    assert {fault.file for fault in caught.value.faults} == {"one.json", "two.json"}


@pytest.mark.parametrize("name", ["missing.json", "noise.tar.xz", "empty.tar", "."])
def test_files_that_cannot_be_read(tmp_path, name):
    (tmp_path / "noise.tar.xz").write_bytes(b"noise")
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    with pytest.raises(BadInput):
        read_recordings(tmp_path / name)


# --- comparing ---


def test_a_changed_row_is_shown_with_both_sides():
    recording = golden_recordings()["03_kv_starved"]
    rows = list(recording.rows)
    column = recording.columns.index("blocks_used")
    rows[100] = (*rows[100][:column], rows[100][column] + 1, *rows[100][column + 1 :])
    comparison = replayed(replace(recording, rows=tuple(rows)))
    assert not comparison.equal
    assert comparison.equal_steps == comparison.difference.step == 100
    assert comparison.difference.columns == {
        "blocks_used": (recording.rows[100][column] + 1, recording.rows[100][column])
    }
    assert comparison.difference.scheduled == {}
    assert comparison.difference.preempted == ((), ())


def test_changed_chunks_and_preemptions_are_shown():
    recording = golden_recordings()["03_kv_starved"]
    k = next(k for k, ids in enumerate(recording.preempted) if ids)
    (id,) = recording.preempted[k]
    preempted = list(recording.preempted)
    preempted[k] = frozenset({"r0"})
    comparison = replayed(replace(recording, preempted=tuple(preempted)))
    assert comparison.difference.preempted == (("r0",), (id,))

    chunks = list(recording.chunks)
    chunks[0] = {**chunks[0], "r0": 7}
    comparison = replayed(replace(recording, chunks=tuple(chunks)))
    assert comparison.difference.scheduled == {"r0": (7, recording.chunks[0]["r0"])}


def test_another_engine_differs_where_its_rule_first_matters():
    recording = golden_recordings()["03b_kv_starved_watermark"]
    limits = replace(recording.limits, watermark_blocks=0)
    comparison = replay_recording(recording, SteppedReference(limits))
    assert comparison.difference.step == 0
    assert comparison.difference.columns["running"] == (10, 11)


@pytest.mark.parametrize("name", ["03_kv_starved", "async/ASYNC_03_kv_starved"])
def test_a_recording_cut_short_or_too_long_differs_at_its_end(name):
    recording = golden_recordings()[name]
    steps = len(recording.rows)
    cut = 10
    short = replace(
        recording, rows=recording.rows[:-cut], chunks=recording.chunks[:-cut], preempted=recording.preempted[:-cut]
    )
    difference = replayed(short).difference
    assert difference.step == steps - cut
    assert all(recorded is None for recorded, _ in difference.columns.values())

    last = recording.rows[-1]
    long = replace(
        recording,
        rows=(*recording.rows, last),
        chunks=(*recording.chunks, {}),
        preempted=(*recording.preempted, frozenset()),
    )
    difference = replayed(long).difference
    assert difference.step == steps
    assert all(simulated is None for _, simulated in difference.columns.values())


def test_a_changed_result_is_told_after_equal_steps():
    recording = golden_recordings()["03_kv_starved"]
    results = {**recording.results, "r3": {**recording.results["r3"], "finish_step": 5}}
    comparison = replayed(replace(recording, results=results))
    assert comparison.difference is None
    assert not comparison.equal
    (request,) = comparison.requests
    assert request.id == "r3"
    assert request.fields == {"finish_step": (5, recording.results["r3"]["finish_step"])}


def test_a_request_that_never_fits_is_named():
    recording = golden_recordings()["03_kv_starved"]
    requests = (replace(recording.requests[0], prompt_tokens=2000), *recording.requests[1:])
    with pytest.raises(BadInput, match="r0"):
        replayed(replace(recording, requests=requests))

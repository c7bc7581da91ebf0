"""`rollsim replay --recording` on recordings that hold anything: never a traceback, every fault named."""

import json
import tarfile
from functools import cache
from pathlib import Path

import pytest

from rollsim.cli.app import main
from tests.golden import ARCHIVE

NAN, TEXT = float("nan"), "seven"
HUGE = (10**12, 10**15, 10**20, 1e20)
WRONG = (-1, 2.5, NAN, float("inf"), TEXT, True, None, [], {})
INT64 = 2**63 - 1


@cache
def content() -> bytes:
    with tarfile.open(ARCHIVE) as archive:
        file = archive.extractfile("20_ngram_kv_pressure.json")
        assert file is not None
        return file.read()


def recording() -> dict:
    """Speculation, a prefix cache, output ids, 141 steps; a pause, an abort and a resumption are added."""
    document = json.loads(content())
    document["config"]["updates"] = [{"after_step": 9, "mode": "keep", "clear_cache": True}]
    document["requests"][3]["abort_after_step"] = 20
    return document


CONFIG = (
    "max_num_seqs", "max_num_batched_tokens", "block_size", "num_gpu_blocks", "max_model_len", "watermark_blocks",
    "long_prefill_token_threshold", "max_num_scheduled_tokens", "max_num_active_seqs",
)  # fmt: skip
REQUEST = ("prompt_tokens", "output_tokens", "before_step", "priority", "abort_after_step")
# Path to every number of a recording that something is done with.
NUMBERS: list[tuple] = [
    *(("config", key) for key in CONFIG),
    ("config", "spec", "num_speculative_tokens"),
    ("config", "updates", 0, "after_step"),
    *(("requests", 2, key) for key in REQUEST),
    ("rows", 5, 4),
    ("prefill_chunks", 0, "r0"),
    *(("spec_steps", 20, None, i) for i in range(4)),
    ("output_ids", "r1", 3),
    ("result", "r1", "finish_step"),
    ("steps",),
    ("preemptions",),
]
# Counts that are only compared: a number that no engine reaches is a difference, not a fault.
COMPARED = ("rows", "result")


def put(document: dict, path: tuple, value: object) -> None:
    place = document
    for key in path[:-1]:
        place = next(iter(place.values())) if key is None else place[key]
    place[path[-1]] = value


def replayed(capsys, tmp_path: Path, document: dict, *words: str) -> tuple[int, str, str]:
    (tmp_path / "r.json").write_text(json.dumps(document))
    with pytest.raises(SystemExit) as end:
        main(["replay", "--recording", str(tmp_path / "r.json"), "--quiet", *words])
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


@pytest.mark.parametrize("path", NUMBERS, ids=lambda path: ".".join(map(str, path)))
def test_a_number_beyond_what_an_engine_can_take_is_named(capsys, tmp_path, path):
    for value in HUGE:
        document = recording()
        put(document, path, value)
        code, out, err = replayed(capsys, tmp_path, document, "--json")
        if path[0] in COMPARED and isinstance(value, int) and value <= INT64:
            assert code == 3, value
            continue
        assert (code, out) == (2, ""), value
        (fault,) = json.loads(err)["faults"]
        assert next(str(key) for key in path if isinstance(key, str)) in fault["place"], value
        assert "Traceback" not in err


@pytest.mark.parametrize("path", NUMBERS, ids=lambda path: ".".join(map(str, path)))
def test_what_is_no_number_of_its_kind_is_named(capsys, tmp_path, path):
    for value in WRONG:
        document = recording()
        put(document, path, value)
        code, out, err = replayed(capsys, tmp_path, document, "--json")
        harmless = {
            "priority": value == -1 and not isinstance(value, bool),
            "abort_after_step": value is None,
            "finish_step": value in (-1, None, TEXT),
        }
        if harmless.get(str(path[-1])):
            assert code in (0, 3), value
            continue
        assert (code, out) == (2, ""), value
        # Strictly JSON: no NaN.
        json.loads(err, parse_constant=pytest.fail)


@pytest.mark.parametrize("key", [*CONFIG, "num_speculative_tokens"])
def test_the_largest_numbers_allowed_run_into_no_traceback(capsys, tmp_path, key):
    document = recording()
    path = ("config", "spec", key) if key == "num_speculative_tokens" else ("config", key)
    put(document, path, 10**20)
    err = replayed(capsys, tmp_path, document, "--json")[2]
    top = int(json.loads(err)["faults"][0]["allowed"].rsplit(" to ", 1)[1])
    put(document, path, top)
    code, _, err = replayed(capsys, tmp_path, document)
    assert code in (0, 2, 3)
    assert "Traceback" not in err


def test_every_request_that_never_fits_is_named_at_once(capsys, tmp_path):
    """Of all recordings, also those that would be added late, and those with more drafts than the pool holds."""
    one, two = recording(), recording()
    del one["output_ids"], two["output_ids"]
    for id in ("r30", "r35"):
        request = next(request for request in one["requests"] if request["id"] == id)
        request["group"], request["prompt_tokens"] = None, 5_000
    step = next(step for step in two["spec_steps"] if step)
    drafted = next(iter(step))
    step[drafted] = [1_023, 0, 0, 0]
    two["config"] |= {"num_gpu_blocks": 60}
    (tmp_path / "one.json").write_text(json.dumps(one))
    (tmp_path / "two.json").write_text(json.dumps(two))
    with pytest.raises(SystemExit) as end:
        main(["replay", "--recording", str(tmp_path / "one.json"), str(tmp_path / "two.json"), "--json"])
    faults = json.loads(capsys.readouterr().err)["faults"]
    assert end.value.code == 2
    assert [(fault["file"], fault["place"]) for fault in faults] == [
        ("one.json", "requests: r30"),
        ("one.json", "requests: r35"),
        ("two.json", f"requests: {drafted}"),
    ]
    assert "5000 tokens must be below max_model_len" in faults[0]["message"]
    assert "KV blocks" in faults[2]["message"]


def test_a_number_of_thousands_of_digits_is_bad_input(capsys, tmp_path):
    text = json.dumps(recording()).replace('"steps": 141', f'"steps": {"9" * 5_000}')
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(SystemExit) as end:
        main(["replay", "--recording", str(tmp_path / "r.json")])
    assert end.value.code == 2
    assert "thousands of digits" in capsys.readouterr().err


def test_preemptions_are_those_recorded_even_where_the_simulation_parts(capsys, tmp_path):
    document = json.loads(content())
    document["rows"][0][4] += 1
    code, out, _ = replayed(capsys, tmp_path, document, "--json")
    assert code == 3
    (row,) = json.loads(out)["recordings"]
    assert (row["equal_steps"], row["preemptions"]) == (0, document["preemptions"])
    assert row["preemptions"] > 0


@pytest.mark.parametrize("name", ["folder", "noise.json", "noise.tar.xz", "noise.tar.gz", "noise.tar", "cut.tar.xz"])
def test_what_is_not_a_recording_is_said_in_plain_words(capsys, tmp_path, name):
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    else:
        path.write_bytes(ARCHIVE.read_bytes()[:5_000] if name == "cut.tar.xz" else bytes(range(256)) * 40)
    with pytest.raises(SystemExit) as end:
        main(["replay", "--recording", str(path)])
    err = capsys.readouterr().err
    assert end.value.code == 2
    assert len(err.splitlines()) == 2
    assert not any(word in err for word in ("Errno", "codec", "Error", "method", "Traceback")), err

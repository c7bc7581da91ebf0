"""Damaged logs: everything wrong is counted with its place, and no damage brings a traceback or a hang."""

import json
import random
import shutil

import pytest

from rollsim.traces.errors import BadInput
from rollsim.traces.importers.damage import Damage
from rollsim.traces.importers.draft import Options
from rollsim.traces.importers.log import read_log
from tests.traces.importers import samples

MUTATIONS = 1000


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Change, insert or delete bytes, or cut the file off."""
    text = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(len(text) + 1)
        kind = rng.randrange(4)
        if kind == 0 and text:
            text[place % len(text)] = rng.randrange(256)
        elif kind == 1:
            text[place:place] = rng.randbytes(rng.choice((1, 3)))
        elif kind == 2:
            del text[place : place + rng.choice((1, 2, 20))]
        else:
            del text[place:]
    return bytes(text)


@pytest.mark.parametrize("name", samples.LOGS)
def test_a_thousand_mutations_of_each_file(tmp_path, name):
    """Whatever is done to a file, it is imported with what is wrong counted, or refused as bad input."""
    whole = samples.LOGS[name](tmp_path / "whole")
    for file in sorted(file for file in whole.rglob("*") if file.is_file()):
        alone = tmp_path / file.stem / file.relative_to(whole)
        alone.parent.mkdir(parents=True, exist_ok=True)
        data, rng = file.read_bytes(), random.Random(file.name)
        faulty = 0
        for _ in range(MUTATIONS):
            alone.write_bytes(mutated(data, rng))
            faulty += faults_of(tmp_path / file.stem) > 0
        assert faulty > MUTATIONS / 10, file.name
        shutil.rmtree(tmp_path / file.stem)


@pytest.mark.parametrize("name", samples.STEP_LOGS)
def test_a_thousand_mutations_of_step_metrics(tmp_path, name):
    data, rng = samples.STEP_LOGS[name].encode(), random.Random(name)
    faulty = 0
    for _ in range(MUTATIONS):
        (tmp_path / name).write_bytes(mutated(data, rng))
        faulty += faults_of(tmp_path) > 0
    assert faulty > MUTATIONS / 20


def faults_of(folder) -> int:
    """Import a folder and count its faults; a refusal is one."""
    try:
        log = read_log(folder, options=Options(allow_pickle=True))
    except BadInput as error:
        return len(error.faults)
    json.dumps(log.document(), allow_nan=False)
    return log.fault_count


def test_counts_and_first_places():
    damage = Damage("log")
    for number in range(8):
        damage.add("a value is negative", f"line {number}", -number)
    damage.add("an empty file", "a.jsonl")
    assert [str(fault) for fault in damage.faults()] == [
        "log: line 0, line 1, line 2, line 3, line 4 and 3 more: a value is negative: 8 times; given 0",
        "log: a.jsonl: an empty file",
    ]
    assert (damage.count, damage.counts()["a value is negative"]) == (9, 8)


def rows_of(tmp_path, *rows: dict) -> object:
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_log(tmp_path / "t.jsonl")


def test_lengths_times_and_names_that_cannot_be(tmp_path):
    """NaN, a negative time, a fraction, a text, a name that stands twice, and an end before its start."""
    good = {"sample_id": "a", "prompt_tokens": 5, "output_tokens": 7, "arrival_s": 2.0, "t_end_s": 3.0}
    log = rows_of(
        tmp_path,
        good,
        good | {"sample_id": "b", "output_tokens": float("nan")},
        good | {"sample_id": "c", "arrival_s": -1.0},
        good | {"sample_id": "d", "prompt_tokens": 1.5},
        good | {"sample_id": "e", "t_end_s": 1.0},
        good,
    )
    assert log.rollouts["sample_id"].to_pylist() == ["a", "b", "c", "d", "e"]
    assert log.rollouts["output_tokens"].to_pylist() == [7, None, 7, 7, 7]
    assert log.rollouts["prompt_tokens"].to_pylist() == [5, 5, 5, None, 5]
    assert log.rollouts["t_submit_s"].to_pylist() == [0.0, 0.0, None, 0.0, None]
    found = {fault.message: fault.place for fault in log.faults}
    assert found == {
        "output_tokens is not a number; the value is not used": "t.jsonl line 2",
        "arrival_s is out of range; the value is not used": "t.jsonl line 3",
        "prompt_tokens is out of range; the value is not used": "t.jsonl line 4",
        "a trajectory stands more than once; the first is kept": "sample a",
        "times in the wrong order (a clock was off); none of the trajectory's are used": "sample e",
    }


def test_mixed_versions_of_a_file(tmp_path):
    """Columns may come and go; a row without one has no value there."""
    rows = [{"input_length": 1, "output_length": 2}, {"input_length": 1, "output_length": 2, "timestamp": 4}]
    log = rows_of(tmp_path, *rows)
    assert log.rollouts["t_submit_s"].to_pylist() == [None, 0.0]
    assert any("not all have the same columns: timestamp in 1" in line for line in log.found)
    folder = samples.nemo_rl(tmp_path / "nemo")
    file = folder / "train_data_step5.jsonl"
    file.write_text(file.read_text().replace("token_loss_mask", "mask", 1))
    (fault,) = read_log(folder).faults
    assert "a row without token_loss_mask among rows with it (mixed versions)" in fault.message
    assert fault.place == "train_data_step5.jsonl line 1"


def test_an_empty_file_among_others(tmp_path):
    samples.nemo_rl(tmp_path)
    (tmp_path / "train_data_step6.jsonl").touch()
    log = read_log(tmp_path)
    assert any("train_data_step6.jsonl" in line for line in log.found)
    (tmp_path / "train_data_step5.jsonl").write_text("")
    with pytest.raises(BadInput, match="no file of it"):
        read_log(tmp_path)


def test_what_is_no_folder(tmp_path):
    with pytest.raises(BadInput, match="is an empty folder"):
        read_log(tmp_path)
    with pytest.raises(BadInput, match="no such file"):
        read_log(tmp_path / "absent")

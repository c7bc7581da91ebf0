"""A run folder is written whole or not at all, and a damaged one is named."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from rollsim.traces import writer
from rollsim.traces.errors import BadInput
from rollsim.traces.exchange import exchange
from rollsim.traces.run import Run
from rollsim.traces.schema import build
from rollsim.traces.writer import check_target, write_run

COUNT = 5_000


def tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(3)
    return {
        "rollouts": build(
            "rollouts",
            {
                "sample_id": pa.array(np.arange(COUNT)).cast(pa.string()),
                "prompt_tokens": rng.integers(1, 999, COUNT),
                "t_end_s": rng.random(COUNT),
            },
        ),
        "ledger": build("ledger", {"pool": "rollout", "category": pa.array(["decode"]), "gpu_s": np.array([2.5])}),
    }


@pytest.fixture
def folder(tmp_path):
    write_run(tmp_path / "run", tables(), {"seed": 7}, {"makespan_s": 1.5}, seed=7, inputs={"trace": "abc"})
    return tmp_path / "run"


def beside(repository) -> dict[str, str]:
    """Environment of a process that can import the tests."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(repository), os.environ.get("PYTHONPATH", "")])}


def faults_of(folder) -> str:
    with pytest.raises(BadInput) as caught:
        Run.open(folder)
    return str(caught.value)


def test_what_was_written_is_read(folder):
    run = Run.open(folder)
    assert run.tables == ["rollouts", "ledger"]
    assert run.config == {"seed": 7}
    assert run.summary == {"makespan_s": 1.5}
    assert run.manifest["inputs"] == {"trace": "abc"}
    assert run.manifest["seed"] == 7
    assert {"rollsim", "python", "numba"} <= set(run.manifest["versions"])  # type: ignore[call-overload]
    for name, table in tables().items():
        assert run.table(name).equals(table)
        assert run.table(name).schema.equals(table.schema, check_metadata=True)
    assert run.table("rollouts", ["t_end_s"]).column_names == ["t_end_s"]
    assert sorted(file.name for file in folder.iterdir()) == [
        "config.json", "ledger.parquet", "manifest.json", "rollouts.parquet", "summary.json",
    ]  # fmt: skip


def test_the_same_run_gives_the_same_bytes(folder, tmp_path):
    write_run(tmp_path / "again", tables(), {"seed": 7}, {"makespan_s": 1.5}, seed=7, inputs={"trace": "abc"})
    for file in folder.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_asking_for_what_is_not_there(folder):
    run = Run.open(folder)
    with pytest.raises(BadInput, match="did you mean 'rollouts'"):
        run.table("rollout")
    with pytest.raises(BadInput, match="did you mean 'prompt_tokens'"):
        run.table("rollouts", ["promt_tokens", "t_end_s"])


def test_an_older_run_is_replaced_and_other_things_are_not(folder, tmp_path):
    write_run(folder, {}, {"seed": 8}, {})
    assert Run.open(folder).config == {"seed": 8}
    assert Run.open(folder).tables == []
    (tmp_path / "mine").mkdir()
    check_target(tmp_path / "mine")
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    for place in ("mine", "file"):
        with pytest.raises(BadInput, match=place):
            write_run(tmp_path / place, {}, {}, {})
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "mine", "run"]


def test_a_place_that_cannot_be_made_is_bad_input(folder):
    with pytest.raises(BadInput, match="cannot be written"):
        write_run(folder / "config.json" / "run", {}, {}, {})


def test_failing_in_the_middle_leaves_nothing(tmp_path, monkeypatch):
    write = writer._write_table

    def fail_at_ledger(file, table):
        if file.stem == "ledger":
            raise OSError(28, "No space left on device")
        write(file, table)

    monkeypatch.setattr(writer, "_write_table", fail_at_ledger)
    with pytest.raises(BadInput, match="No space left"):
        write_run(tmp_path / "run", tables(), {}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_leaves_no_run_and_the_next_one_cleans_up(tmp_path, repository):
    code = (
        "import os, sys; from rollsim.traces import writer; from tests.traces.test_run import tables\n"
        "write = writer._write_table\n"
        "writer._write_table = lambda f, t: write(f, t) if f.stem != 'ledger' else os.kill(os.getpid(), 9)\n"
        "writer.write_run(sys.argv[1], tables(), {}, {})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")], env=beside(repository), timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "run").exists()
    assert len(list(tmp_path.iterdir())) == 1
    write_run(tmp_path / "run", tables(), {}, {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
    assert Run.open(tmp_path / "run").table("ledger").num_rows == 1


NO_EXCHANGE = "writer.exchange = lambda a, b: False"
KILLED = """
import os, sys
from pathlib import Path
from rollsim.traces import writer
from tests.traces.test_run import tables

def kill(*_, **__):
    os.kill(os.getpid(), 9)

{moment}
writer.write_run(sys.argv[1], tables(), {{"seed": 9}}, {{}})
"""


@pytest.mark.parametrize(
    ("moment", "seed"),
    [
        ("writer.exchange = kill", 7),
        ("exchange = writer.exchange; writer.exchange = lambda a, b: (exchange(a, b), kill())", 9),
        ("writer.shutil.rmtree = kill", 9),
        (f"{NO_EXCHANGE}; rename = Path.rename; Path.rename = lambda a, b: (rename(a, b), kill())", None),
        (f"{NO_EXCHANGE}; writer.shutil.rmtree = kill", 9),
    ],
)
def test_an_older_run_is_never_lost_when_its_successor_is_killed(
    folder, tmp_path, repository, monkeypatch, moment, seed
):
    """Old or new stands there; without a system call to exchange folders the next writer brings the old one back."""
    code = KILLED.format(moment=moment)
    done = subprocess.run([sys.executable, "-c", code, str(folder)], env=beside(repository), timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert folder.exists() == (seed is not None)
    if seed is not None:
        assert Run.open(folder).config == {"seed": seed}

    def fail(file, table):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "_write_table", fail)
        with pytest.raises(BadInput, match="No space left"):
            write_run(folder, tables(), {}, {})
    assert Run.open(folder).config == {"seed": seed or 7}
    write_run(folder, tables(), {"seed": 10}, {})
    assert Run.open(folder).config == {"seed": 10}
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("works", [True, False])
def test_a_run_is_replaced_with_and_without_the_system_call(folder, tmp_path, monkeypatch, works):
    if not works:
        monkeypatch.setattr(writer, "exchange", lambda one, other: False)
    write_run(folder, tables(), {"seed": 8}, {})
    assert Run.open(folder).config == {"seed": 8}
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_folders_change_places(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this system has no call for it")
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["b"]
    assert [file.name for file in (tmp_path / "b").iterdir()] == ["a"]
    assert not exchange(tmp_path / "a", tmp_path / "nowhere")


def test_a_place_without_a_name_is_refused(monkeypatch, tmp_path):
    """Not the current folder, which the empty path would be."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="--out: no name"):
        write_run("", tables(), {}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_named(tmp_path):
    assert "not a run folder" in faults_of(tmp_path)
    assert "no such folder" in faults_of(tmp_path / "absent")
    (tmp_path / "file").write_text("x")
    assert "is not a folder" in faults_of(tmp_path / "file")
    for name in ("config", "manifest", "summary"):
        (tmp_path / f"{name}.json").write_text('{"format": "other"}')
    assert "not a run of rollsim" in faults_of(tmp_path)


def test_every_damage_is_named_at_once(folder):
    (folder / "config.json").write_text('{"seed": 7')
    (folder / "summary.json").unlink()
    printed = faults_of(folder)
    assert "config.json: is damaged" in printed
    assert "summary.json: is missing" in printed
    (folder / "config.json").write_text("{}")
    (folder / "summary.json").write_text("{}")
    (folder / "ledger.parquet").unlink()
    with (folder / "rollouts.parquet").open("r+b") as file:
        file.truncate(900)
    printed = faults_of(folder)
    assert "rollouts.parquet: is damaged" in printed
    assert "ledger.parquet: is missing" in printed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 99}, "another version"),
        ({"tables": {"rollouts": 4, "ledger": 1}}, "4, as the manifest says"),
        ({"tables": {"rolouts": 4}}, "did you mean 'rollouts'"),
        ({"tables": ["rollouts"]}, "damaged"),
    ],
)
def test_a_manifest_that_does_not_fit(folder, change, message):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | change))
    assert message in faults_of(folder)


def test_a_flipped_bit_in_a_page_is_noticed(folder):
    file = folder / "rollouts.parquet"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content)
    with pytest.raises(BadInput, match="damaged"):
        Run.open(folder).table("rollouts")

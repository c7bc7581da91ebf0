"""The command line as a whole: start-up, help, version, wrong words, bad input."""

import json
import os
import resource
import subprocess
import sys

import pytest
import typer

from rollsim.cli import app as cli
from rollsim.traces.errors import BadInput, Fault

# Typer itself needs pydantic.
HEAVY = {"numpy", "numba", "scipy", "pyarrow", "simpy", "yaml", "pandas", "rich"}
LISTING = """
import sys
from rollsim.cli.app import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    print(*sorted(set(sys.modules)), file=sys.stderr)
    sys.exit(end.code)
"""


def command_words() -> list[list[str]]:
    """Words of every command, those of command groups too."""
    return [
        [],
        *([command.name] for command in cli.app.registered_commands),
        *(
            [group.name, *inner]
            for group in cli.app.registered_groups
            for inner in (
                [],
                *([command.name or command.callback.__name__] for command in group.typer_instance.registered_commands),
            )
        ),
    ]


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from rollsim.cli.app import main; main(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env=os.environ | {"COLUMNS": "80"} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("words", command_words(), ids=" ".join)
def test_help_imports_nothing_heavy(words):
    done = subprocess.run(
        [sys.executable, "-c", LISTING, *words, "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: rollsim" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert set(done.stderr.split()) & HEAVY == set()


def test_start_up_costs_little_more_than_python_itself():
    def cpu_s(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], capture_output=True, timeout=60, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    own = min(cpu_s("-c", "from rollsim.cli.app import main; main(['--help'])") for _ in range(3))
    typer_alone = min(cpu_s("-c", "import typer") for _ in range(3))
    assert own <= 3 * typer_alone + 0.05


def test_nothing_is_registered_twice():
    names = [words[0] for words in command_words() if len(words) == 1]
    assert len(names) == len(set(names))


def test_without_words_it_shows_the_help_and_fails():
    done = run()
    assert done.returncode == 2
    assert "Usage: rollsim" in done.stderr
    assert done.stdout == ""


def test_version():
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.split()[0] == "rollsim"


@pytest.mark.parametrize(("words", "closest"), [(["docto"], "doctor"), (["doctor", "--jsn"], "--json")])
def test_a_wrong_word_gets_the_closest_one(words, closest):
    done = run(*words)
    assert done.returncode == 2
    assert closest in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_wrong_word_is_json_if_json_was_wanted():
    done = run("docto", "--json")
    assert done.returncode == 2
    assert "doctor" in json.loads(done.stderr)["faults"][0]["message"]


def test_shell_completion_knows_the_commands():
    done = run(_ROLLSIM_COMPLETE="complete_bash", COMP_WORDS="rollsim doc", COMP_CWORD="1")
    assert done.stdout.split() == ["doctor"]


@pytest.fixture
def failing(monkeypatch):
    """Put a command in place that finds two faults."""
    stand_in = typer.Typer()
    faults = [Fault("t.csv", "line 3", "x", "a number"), Fault("t.csv", "line 9", 0, "1 or more", message="zero")]

    @stand_in.command()
    def command(as_json: bool = typer.Option(False, "--json")) -> None:
        raise BadInput(faults)

    monkeypatch.setattr(cli, "app", stand_in)


@pytest.mark.usefixtures("failing")
def test_bad_input_prints_every_fault_and_exits_2(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([])
    printed = capsys.readouterr()
    assert end.value.code == 2
    assert printed.out == ""
    assert "2 faults" in printed.err
    assert "t.csv: line 3: given 'x'; allowed: a number" in printed.err
    assert "t.csv: line 9: zero; given 0; allowed: 1 or more" in printed.err


@pytest.mark.usefixtures("failing")
def test_bad_input_is_json_if_json_was_wanted(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--json"])
    document = json.loads(capsys.readouterr().err)
    assert end.value.code == 2
    assert [fault["place"] for fault in document["faults"]] == ["line 3", "line 9"]

"""What the README says can be run, runs; what it shows is what is printed."""

import re
import shlex
import tomllib

import pytest

from rollsim.cli.app import app, main


@pytest.fixture(scope="module")
def readme(repository):
    return (repository / "README.md").read_text(encoding="utf-8")


def test_every_make_target_exists(repository, readme):
    targets = set(re.findall(r"^([a-z]+):", (repository / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)`", readme))
    assert named >= {"demo", "test"}
    assert named <= targets


def test_every_rollsim_command_exists(readme):
    commands = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    named = set(re.findall(r"rollsim ([a-z]+)", readme.split("## What it is validated")[0]))
    assert {"replay", "profiles", "doctor"} <= named & commands
    assert named <= commands


def test_every_extra_exists(repository, readme):
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(re.findall(r"\.\[([a-z]+)\]", readme)) <= set(project["optional-dependencies"])


def test_demo_and_pip_route_run_the_command_that_is_shown(repository, readme):
    (shown,) = re.findall(r"^\$ (rollsim .*)$", readme, flags=re.MULTILINE)
    assert f"&& {shown}`" in readme
    assert f"DEMO := {shown.removeprefix('rollsim ')}\n" in (repository / "Makefile").read_text(encoding="utf-8")


def test_the_output_that_is_shown_is_what_is_printed(readme, capsys):
    """All but the last line, which says how long it took."""
    ((shown, pasted),) = re.findall(r"```console\n\$ rollsim (.*?)\n(.*?)\n```", readme, flags=re.DOTALL)
    with pytest.raises(SystemExit) as end:
        main(shlex.split(shown))
    assert end.value.code == 0
    printed = capsys.readouterr().out.rstrip().splitlines()
    assert pasted.splitlines()[:-1] == printed[:-1]


def test_the_splits_that_are_shown_are_what_is_printed(readme, capsys):
    ((shown, pasted),) = re.findall(r"`rollsim (split [^`]*)` runs .*?```text\n(.*?)\n```", readme, flags=re.DOTALL)
    with pytest.raises(SystemExit):
        main(shlex.split(shown))
    assert pasted.splitlines() == [line.rstrip() for line in capsys.readouterr().out.rstrip().splitlines()]

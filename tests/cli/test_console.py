"""Results on stdout, everything else on stderr."""

import json

import numpy as np

from rollsim.cli import console


def test_json_is_the_document_and_makes_no_table(capsys):
    console.emit({"makespan_s": np.float64(1.5), "count": np.int64(3)}, True, lambda: 1 / 0)  # type: ignore[arg-type]
    assert json.loads(capsys.readouterr().out) == {"makespan_s": 1.5, "count": 3}


def test_tables_fit_80_columns_and_keep_brackets(capsys):
    rows = [("[bold]name[/]", 12.5), ("x" * 200, "y " * 60)]
    console.emit({}, False, lambda: [console.table(("what", ">value"), rows), "a line [s]"])
    printed = capsys.readouterr()
    assert max(map(len, printed.out.splitlines())) <= 80
    assert "[bold]name[/]" in printed.out
    assert "a line [s]" in printed.out
    assert printed.out.replace("\n", "").count("x") == 200
    assert printed.err == ""


def test_notes_go_to_stderr_unless_quiet(capsys):
    console.note("one")
    console.note("two", quiet=True)
    assert capsys.readouterr() == ("", "one\n")


def test_progress_is_off_where_there_is_no_terminal(capsys):
    with console.progress("work", 10) as advance:
        advance(5)
    assert capsys.readouterr() == ("", "")

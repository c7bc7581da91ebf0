"""`rollsim laws` as a user sees it."""

import json

import pytest

from rollsim.cli.app import main
from rollsim.simulator.law_store import list_laws, load_law
from rollsim.simulator.length_law import Drift


@pytest.fixture
def laws(capsys):
    """Run `rollsim laws` in this process: (exit code, stdout, stderr)."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["laws", *map(str, words)])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


def row(out: str, first: str) -> list[str]:
    """Words after the first of the one line that begins with it."""
    (line,) = [line for line in out.splitlines() if line.split()[:1] == [first]]
    return line.split()[1:]


def test_list(laws):
    code, out, err = laws("list")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    for name in list_laws():
        assert row(out, name)
    # 1 % at the cap and the median of 658 are published; the law's median is 0.6 % less.
    assert row(out, "rollpacker-math-14b")[0] == "654"
    assert row(out, "rollpacker-math-14b")[2:4] == ["16,384", "1.0%"]
    document = json.loads(laws("list", "--json")[1])
    assert [law["name"] for law in document["laws"]] == list_laws()
    (aime,) = [law for law in document["laws"] if law["name"] == "r1-distill-1.5b-aime"]
    assert aime["p50_tokens"] == pytest.approx(7563.5, rel=0.01)


@pytest.mark.parametrize("name", list_laws())
def test_show_says_what_was_published_what_comes_out_and_what_was_held_out(laws, name):
    code, out, err = laws("show", name)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    evidence = load_law(name).evidence
    for quantile in evidence.quantiles:
        published, law, error, *used = row(out, f"P{100 * quantile.share:g}")
        assert published == f"{quantile.tokens:,.0f}"
        assert float(law.replace(",", "")) == pytest.approx(quantile.tokens * (1 + quantile.error), abs=0.51)
        assert error == f"{quantile.error:+.1%}"
        assert " ".join(used) == ("fitted" if quantile.used else "held out")
    for observation in evidence.observations:
        assert observation.what in out
    assert "e+0" not in out
    assert "assumed" in out
    assert json.loads(laws("show", name, "--json")[1]) == load_law(name).model_dump(mode="json")


def test_show_a_file_with_drift_and_without_evidence(laws, tmp_path):
    law = load_law("sky-t1-32b-aime24").model_copy(
        update={"drift": (Drift(version=0, factor=1.0), Drift(version=50, factor=1.5)), "evidence": None}
    )
    law.write(tmp_path / "mine.json")
    code, out, _ = laws("show", tmp_path / "mine.json")
    assert code == 0
    assert "x 1.5 at version 50" in out
    assert "rewards are unknown" in out
    assert "published" not in out


def test_unknown_names_and_bad_files(laws, tmp_path):
    code, out, err = laws("show", "rollpacker-code")
    assert (code, out) == (2, "")
    assert "did you mean 'rollpacker-code-14b'" in err
    path = tmp_path / "law.yaml"
    path.write_text("schema_version: 1\nname: X\ncap_token: 4\nbody: []\nprompt_share: 2\n")
    code, out, err = laws("show", path)
    assert (code, out) == (2, "")
    for place in ("$.name", "$.cap_token", "$.cap_tokens", "$.body", "$.prompt_share", "$.prompt"):
        assert f"{place}:" in err, place

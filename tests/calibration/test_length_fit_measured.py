"""From measured responses to a length law: censored likelihoods, families, groups, pass rates, and what is too few."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rollsim.calibration.length_candidates import FAMILIES, Candidate, Observed, candidates, fit
from rollsim.calibration.length_fit import Responses, fit_lengths, law_name, prompt_share
from rollsim.calibration.length_fit_report import text
from rollsim.cli.app import main
from rollsim.simulator.law_store import load_law
from rollsim.simulator.length_body import Body
from rollsim.simulator.length_law import LengthLaw, Lognormal, PassRate, PromptLength
from rollsim.simulator.lengths import Lengths
from rollsim.simulator.rng import Streams
from rollsim.simulator.workload import LawWorkload, groups


def seen(tokens, cap) -> Observed:
    tokens = np.maximum(1, np.rint(tokens))
    return Observed.of(np.minimum(tokens, cap), tokens >= cap)


def drawn(law: LengthLaw, prompts: int, size: int) -> Responses:
    """Responses of a law, in groups."""
    made = groups(LawWorkload(law, Streams(7)), np.arange(prompts), size)
    right = made.reward.ravel() == 1 if law.pass_rate else None
    tokens = made.output_tokens.ravel().astype(np.int64)
    prompt = np.repeat(np.arange(prompts), size)
    return Responses(prompt, tokens, tokens >= law.cap_tokens, np.full(len(tokens), 100), right, law.cap_tokens)


def law(**changed) -> LengthLaw:
    given = {
        "schema_version": 1,
        "name": "true",
        "cap_tokens": 8_000,
        "body": (Lognormal(weight=1.0, median_tokens=1_500, sigma=0.8),),
        "prompt_share": 0.4,
        "prompt": PromptLength(median_tokens=100, sigma=0.1, max_tokens=200),
    }
    return LengthLaw(**(given | changed))


TRUE = {
    "lognormal": stats.lognorm(0.7, scale=1_000),
    "gamma": stats.gamma(1.7, scale=800),
    "weibull": stats.weibull_min(1.4, scale=1_500),
}


@pytest.mark.parametrize("family", TRUE)
@pytest.mark.parametrize("atom", [False, True])
def test_parameters_come_back_though_a_third_was_cut(family, atom):
    rng = np.random.default_rng(0)
    tokens = TRUE[family].rvs(40_000, random_state=rng)
    cap = TRUE[family].ppf(0.67)
    if atom:
        tokens = np.where(rng.random(len(tokens)) < 0.1, np.inf, tokens)
    made = fit(seen(np.minimum(tokens, 10 * cap), cap), family, atom=atom)
    shape, scale = {
        "lognormal": lambda: (np.exp(made.values[1]), np.exp(made.values[0])),
        "gamma": lambda: tuple(np.exp(made.values)),
        "weibull": lambda: tuple(np.exp(made.values)),
    }[family]()
    true = {"lognormal": (0.7, 1_000), "gamma": (1.7, 800), "weibull": (1.4, 1_500)}[family]
    assert (shape, scale) == pytest.approx(true, rel=0.05)
    assert made.runaway_share == pytest.approx(0.1 if atom else 0.0, abs=0.03)


def test_cut_lengths_taken_as_ended_ones_would_bend_the_scale():
    """What is avoided: the same data with its cut responses called ended is off by more than a tenth."""
    tokens = TRUE["lognormal"].rvs(20_000, random_state=1)
    cap = 1_500
    right = fit(seen(tokens, cap), "lognormal", atom=False)
    cut = np.minimum(np.rint(tokens), cap)
    wrong = fit(Observed.of(cut, np.zeros(len(cut), bool)), "lognormal", atom=False)
    assert np.exp(right.values[0]) == pytest.approx(1_000, rel=0.03)
    assert np.exp(wrong.values[0]) < 900


def test_the_likelihood_is_that_of_scipy_by_hand():
    """Two ended at 100 and 300, one cut at 500; a tenth never ends."""
    one = Candidate("lognormal", True, np.array([np.log(200), np.log(0.5)]), 0.1)
    true = stats.lognorm(0.5, scale=200)
    found = one.log_likelihoods(np.array([100, 300, 500]), np.array([False, False, True]))
    wanted = [np.log(0.9) + true.logpdf(100), np.log(0.9) + true.logpdf(300), np.log(0.1 + 0.9 * true.sf(500))]
    np.testing.assert_allclose(found, wanted)
    for family, other in (("gamma", stats.gamma(2.0, scale=300)), ("weibull", stats.weibull_min(2.0, scale=300))):
        made = Candidate(family, False, np.log([2.0, 300.0]), 0.0)
        found = made.log_likelihoods(np.array([100, 500]), np.array([False, True]))
        np.testing.assert_allclose(found, [other.logpdf(100), other.logsf(500)])


def test_a_mixture_beats_one_lognormal_where_there_are_two_humps():
    rng = np.random.default_rng(3)
    tokens = np.where(rng.random(6_000) < 0.3, rng.lognormal(4, 0.3, 6_000), rng.lognormal(7, 0.4, 6_000))
    fitted = {made.name: made for made in candidates(seen(tokens, 1 << 20))}
    assert set(fitted) == set(FAMILIES)
    parts = fitted["2 lognormals"].parts()
    assert parts is not None
    assert [part.median_tokens for part in parts] == pytest.approx([np.exp(4), np.exp(7)], rel=0.05)
    assert parts[0].weight == pytest.approx(0.3, abs=0.02)


@given(share=st.floats(0.0, 0.9), cap=st.sampled_from([2_000, 8_000, 100_000]))
@settings(max_examples=12, deadline=None)
def test_the_prompts_share_comes_back(share, cap):
    true = law(prompt_share=share, cap_tokens=cap)
    found = prompt_share(Body(true.body), drawn(true, 600, 8))
    # Cut responses tell less of their prompt than they would.
    assert found == pytest.approx(share, abs=0.06 if cap > 2_000 else 0.25)


def test_a_law_comes_back_with_its_groups_and_pass_rates():
    true = law(pass_rate=PassRate(a=1.2, b=1.8, prompt_correlation=-0.5, sample_correlation=-0.3))
    made, document = fit_lengths(drawn(true, 1_500, 8), "made", "test")
    assert document["chosen"] == "lognormal"
    assert made.body[0].median_tokens == pytest.approx(1_500, rel=0.04)
    assert made.prompt_share == pytest.approx(0.4, abs=0.05)
    assert made.pass_rate is not None
    mean = made.pass_rate.a / (made.pass_rate.a + made.pass_rate.b)
    assert mean == pytest.approx(0.4, abs=0.04)
    assert made.pass_rate.prompt_correlation == pytest.approx(-0.5, abs=0.12)
    rows = {row["what"]: row for row in document["held_out"]}
    assert set(rows) == {"P50", "P90", "P99", "mean", "share cut", "longest of 8"}
    assert abs(rows["longest of 8"]["error"]) < 0.05
    assert not rows["longest of 8"]["too_few"]
    assert Lengths(made).expected_maximum(1, 8) == pytest.approx(Lengths(true).expected_maximum(1, 8), rel=0.05)
    said = document | {"extras": {"drift": None, "reward_s": None, "tool_s": None}}
    assert max(map(len, text(said).splitlines())) <= 80


def test_too_few_are_said_to_be_too_few():
    _, document = fit_lengths(drawn(law(), 12, 5), "made", "test")
    assert any(row["too_few"] for row in document["held_out"])


@pytest.fixture
def rollsim(capsys):
    def run(*words):
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        return end.value.code, *capsys.readouterr()

    return run


def test_from_a_table_to_a_run(rollsim, tmp_path):
    """Lengths that double over 40 versions, rewards that take 2 s: said beside the law, which then runs."""
    seen_of = drawn(law(), 400, 4)
    version = np.repeat(np.arange(40), 40)
    table = {
        "prompt_tokens": seen_of.prompt_tokens,
        "output_tokens": np.minimum(8_000, np.rint(seen_of.tokens * 2 ** (version / 39))).astype(int),
        "group_id": seen_of.prompt,
        "version_start": version,
        "reward_s": np.random.default_rng(0).lognormal(np.log(2), 0.3, len(version)),
    }
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    code, out, err = rollsim("fit", "lengths", tmp_path / "t.parquet", "--out", tmp_path / "My Law.json", "--json")
    assert code == 0, err
    document = json.loads(out)
    drift = document["extras"]["drift"]
    assert drift["is_told"]
    assert drift["knots"][-1]["factor"] == pytest.approx(2, rel=0.25)
    assert document["extras"]["reward_s"]["median_s"] == pytest.approx(2, rel=0.05)
    assert document["extras"]["tool_s"] is None
    assert load_law(str(tmp_path / "My Law.json")).name == "my-law"
    words = ("workload.trace=null", f"workload.law={tmp_path / 'My Law.json'}", "train.steps=1", "--quiet")
    assert rollsim("run", "example:sync", *words)[0] == 0
    code, out, _ = rollsim("fit", "lengths", tmp_path / "t.parquet", "--out", tmp_path / "l.json")
    assert "drift           x " in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.csv", "--out", "l.json"), "none.csv"),
        (("few.csv", "--out", "l.json"), "too few to fit to"),
        (("few.csv", "--out", "l.txt"), "*.json"),
        (("few.csv", "--out", "l.json", "--name", "A B"), "small letters"),
        (("example:nope", "--out", "l.json"), "nope"),
    ],
)
def test_bad_words(rollsim, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.csv").write_text("prompt_tokens,output_tokens\n10,20\n10,30\n")
    code, _, err = rollsim("fit", "lengths", *words)
    assert code == 2
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("given_name", "made"), [("A B.c", "a-b.c"), ("--", "measured"), ("x_1", "x_1")])
def test_names(given_name, made):
    assert law_name(given_name) == made

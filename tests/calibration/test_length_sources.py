"""What the sources of length laws say is what the recorded data hold; skipped where these are not at hand."""

import csv
import gzip
import math

import numpy as np
import pytest

from rollsim.calibration.group_statistics import group_statistics
from rollsim.calibration.length_source import FOLDER, LengthSource, read_length_source

# Numbers are written with four digits, quantiles with one decimal.
CLOSE = {"rel": 6e-4}
P90 = 1.2815515655


@pytest.fixture
def table(shared_data):
    """Columns of a file of the recorded lengths as arrays of text."""

    def read(name: str) -> dict[str, np.ndarray]:
        path = shared_data / "lengths" / name
        with gzip.open(path, "rt") if name.endswith(".gz") else path.open() as file:
            rows = list(csv.DictReader(file))
        return {key: np.array([row[key] for row in rows]) for key in rows[0]}

    return read


def source(name: str) -> LengthSource:
    return read_length_source(FOLDER / f"{name}.yaml")


def check_facts(given: LengthSource, found: dict[str, float]) -> None:
    """Every fact is among the numbers found."""
    for fact in given.facts:
        assert fact.published == pytest.approx(found[fact.statistic], **CLOSE), fact.statistic


def check_quantiles(given: LengthSource, tokens: np.ndarray) -> None:
    shares, published = zip(*given.quantiles, strict=True)
    assert published == pytest.approx(np.quantile(tokens, shares), **CLOSE)


def check_prompt(given: LengthSource, median: float, p90: float) -> None:
    assert given.prompt.median_tokens == median
    assert given.prompt.sigma == pytest.approx(math.log(p90 / median) / P90, abs=6e-4)


def test_math_problems_of_qwen(table):
    given, rows = source("qwen2.5-math-math100"), table("qwen25math_math100_n8.csv")
    tokens, right = (rows[name].astype(float).reshape(100, 8) for name in ("response_tokens", "correct"))
    check_quantiles(given, tokens)
    more = {"mean_tokens": tokens.mean(), "longest_over_median": tokens.max() / np.median(tokens)}
    check_facts(given, group_statistics(tokens, right) | more)
    questions = rows["question_tokens"].astype(float)[::8]
    check_prompt(given, np.median(questions), np.quantile(questions, 0.9))
    assert given.n == tokens.size
    assert tokens.max() < given.cap_tokens


def test_aime_groups(table):
    given, rows = source("r1-distill-1.5b-aime"), table("aime_r1distill1.5b_groups_n8.csv")
    mean, deviation, longest, cut = (
        rows[name].astype(float) for name in ("len_mean", "len_std", "len_max", "truncated")
    )
    rate = rows["pass_rate"].astype(float)
    quantiles = table("aime_r1distill1.5b_quantiles.csv")
    shares = quantiles["quantile"].astype(float)
    tokens = {
        subset: dict(zip(shares[chosen].round(4), quantiles["response_tokens"][chosen].astype(float), strict=True))
        for subset in ("all", "correct", "incorrect")
        if (chosen := quantiles["subset"] == subset).any()
    }
    for share, published in given.quantiles:
        assert published == pytest.approx(tokens["all"][share], **CLOSE)
    found = {
        "cap_share": cut.sum() / (8 * len(mean)),
        "mean_tokens": mean.mean(),
        "std_of_group_means": mean.std(),
        "std_in_group": deviation.mean(),
        "cv_in_group": (deviation / mean).mean(),
        "longest_over_group_mean": np.median(longest / mean),
        "mean_pass_rate": rate.mean(),
        "std_pass_rate": rate.std(),
        "all_wrong": (rate == 0).mean(),
        "all_right": (rate == 1).mean(),
        "pass_rate_length_correlation": np.corrcoef(rate, mean)[0, 1],
        "median_right": tokens["correct"][0.5],
        "median_wrong": tokens["incorrect"][0.5],
    }
    check_facts(given, found)
    assert given.n == 8 * len(mean)


def test_deepseek_r1_in_production(table):
    given, rows = source("deepseek-r1-production"), table("servegen_deepseek_r1_quantiles.csv")
    values = {}
    for field in ("input_tokens", "output_tokens"):
        chosen = rows["field"] == field
        values[field] = rows["quantile"][chosen].astype(float), rows["value"][chosen].astype(float)
    for share, published in given.quantiles:
        assert published == pytest.approx(np.interp(share, *values["output_tokens"]), **CLOSE)
    check_facts(given, {"mean_tokens": values["output_tokens"][1].mean()})
    check_prompt(given, *np.interp([0.5, 0.9], *values["input_tokens"]))


def test_sky_t1_on_aime(table):
    given, rows = source("sky-t1-32b-aime24"), table("skythought_eval_lengths.csv.gz")
    run = np.char.find(rows["model"], "Sky-T1-math-correct-5K-32B-ckpts/checkpoint-") >= 0
    checkpoint = np.where(run, np.char.rpartition(rows["model"], "-")[:, 2], "0").astype(int)
    chosen = (rows["benchmark"] == "aime24") & (checkpoint >= 49)
    tokens, questions = (rows[name][chosen].astype(int) for name in ("response_tokens", "question_tokens"))
    assert len(tokens) == given.n == 30 * 9
    assert len(set(checkpoint[chosen])) == 9
    check_quantiles(given, tokens)
    # What was cut fills the context: prompt and response together have one of two lengths, far above all others.
    cut = tokens + questions >= 32_518
    assert (tokens + questions)[cut].max() <= 32_519
    assert (tokens + questions)[~cut].max() <= 31_163
    check_facts(given, {"cap_share": cut.mean(), "mean_tokens": tokens.mean()})
    assert given.cap_tokens == pytest.approx(32_519 - np.median(questions), abs=1)
    check_prompt(given, np.median(questions), np.quantile(questions, 0.9))

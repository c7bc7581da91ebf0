"""Shipped length laws: what they draw is what they say."""

import itertools

import numpy as np
import pytest

from rollsim.simulator.law_store import list_laws, load_law
from rollsim.simulator.length_law import Drift
from rollsim.simulator.lengths import Lengths
from rollsim.simulator.rng import Streams
from rollsim.simulator.workload import LawWorkload, groups
from rollsim.traces.errors import BadInput

LAWS = list_laws()
PROMPTS, SAMPLES = 4000, 8


def test_the_published_ones_are_there():
    assert {"rollpacker-math-14b", "rollpacker-code-14b", "rollpacker-judge-14b", "r1-distill-1.5b-aime"} <= set(LAWS)


@pytest.mark.parametrize("name", LAWS)
def test_what_is_drawn_is_what_the_law_says(name):
    law = load_law(name)
    lengths = Lengths(law)
    drawn = groups(LawWorkload(law, Streams(1)), np.arange(PROMPTS), SAMPLES)
    tokens = drawn.output_tokens
    # Groups share an effect, so that as many independent values as there are groups are the worst case.
    off = 4 / np.sqrt(PROMPTS)
    for share in (0.1, 0.5, 0.9):
        if share < 1 - lengths.cap_share():
            assert (tokens <= lengths.quantile(share)).mean() == pytest.approx(share, abs=off / 2)
    assert drawn.truncated.mean() == pytest.approx(lengths.cap_share(), abs=off / 2)
    assert tokens.max() <= law.cap_tokens
    assert (tokens[drawn.truncated] == law.cap_tokens).all()
    assert tokens.mean() == pytest.approx(lengths.mean(), rel=0.05)


@pytest.mark.parametrize("name", LAWS)
def test_responses_to_a_prompt_share_what_the_law_says(name):
    law = load_law(name)
    streams = Streams(2)
    prompt = np.arange(PROMPTS)[:, None]
    score = Lengths(law).score(
        streams.normal("prompt.length", prompt), streams.normal("response.length", prompt, 0, np.arange(SAMPLES), 0)
    )
    pairs = np.corrcoef(score[:, 0], score[:, 1])[0, 1]
    assert pairs == pytest.approx(law.prompt_share, abs=4 / np.sqrt(PROMPTS))


def test_pass_rate_and_length_of_the_aime_groups():
    """The published correlation of group pass rate and group mean length is -0.76."""
    drawn = groups(LawWorkload(load_law("r1-distill-1.5b-aime"), Streams(3)), np.arange(PROMPTS), SAMPLES)
    found = np.corrcoef(drawn.reward.mean(axis=1), drawn.output_tokens.mean(axis=1))[0, 1]
    assert found == pytest.approx(-0.76, abs=0.03)
    assert not drawn.reward[drawn.truncated].any()


def test_the_longest_of_many_is_as_computed():
    law = load_law("rollpacker-math-14b")
    drawn = groups(LawWorkload(law, Streams(4)), np.arange(PROMPTS), SAMPLES)
    batches = drawn.output_tokens.reshape(-1, 8 * SAMPLES).max(axis=1)
    assert batches.mean() == pytest.approx(Lengths(law).expected_maximum(8, SAMPLES), rel=0.05)


def test_inv_11_draws_do_not_depend_on_order_or_company():
    workload = LawWorkload(load_law("rollpacker-math-14b"), Streams(5))
    whole = groups(workload, np.arange(20), 4, visit=1)
    for prompt, sample in itertools.product((0, 11, 19), (3, 0)):
        one = workload.draw(prompt, sample, visit=1)
        assert (one.output_tokens, one.reward) == (whole.output_tokens[prompt, sample], whole.reward[prompt, sample])


def test_another_version_changes_the_length_and_no_uniform():
    law = load_law("rollpacker-math-14b").model_copy(
        update={"drift": (Drift(version=0, factor=1.0), Drift(version=1, factor=2.0))}
    )
    workload = LawWorkload(law, Streams(6))
    before, after = (groups(workload, np.arange(50), 4, version=version) for version in (0, 1))
    inside = ~after.truncated
    assert (after.output_tokens[inside] / before.output_tokens[inside]) == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize("name", LAWS)
def test_evidence_tells_fitted_from_held_out(name):
    evidence = load_law(name).evidence
    used = [quantile for quantile in evidence.quantiles if quantile.used]
    assert max(abs(quantile.error) for quantile in used) < 0.03
    assert evidence.free_parameters


def test_bad_laws_name_every_fault(tmp_path):
    path = tmp_path / "law.json"
    text = load_law("rollpacker-math-14b").model_dump_json().replace('"prompt_share":', '"promt_share":')
    path.write_text(text.replace('"cap_tokens":', '"cap_tokens":-'))
    with pytest.raises(BadInput) as error:
        load_law(path)
    shown = str(error.value)
    assert "promt_share" in shown
    assert "did you mean 'prompt_share'" in shown
    assert "cap_tokens" in shown
    with pytest.raises(BadInput, match="did you mean 'rollpacker-math-14b'"):
        load_law("rolpacker-math-14b")

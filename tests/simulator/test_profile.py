from dataclasses import replace

import numpy as np
import pytest

from rollsim.simulator.profile_store import list_profiles, load_profile
from rollsim.simulator.step_tables import padded
from rollsim.traces.errors import BadInput

NAME = "qwen3-8b-h100-tp1-bf16"


@pytest.fixture(scope="module")
def profile():
    return load_profile(NAME)


@pytest.fixture(scope="module")
def cost(profile):
    return profile.step_cost(profile.limits())


# Rows of the step-time table, ms: (batch, context) of a decode step.
DECODE_ROWS = {(1, 4096): 6.4794, (32, 4096): 13.2761, (64, 1024): 10.9466, (128, 2048): 19.5077, (8, 32768): 19.4264}


@pytest.mark.parametrize(("row", "ms"), DECODE_ROWS.items())
def test_decode_rows_of_the_table_come_out_within_the_stated_error(profile, cost, row, ms):
    batch, context = row
    predicted = 1e3 * cost.step_s(batch, True, [(batch, batch * context, 0.0)])
    assert predicted == pytest.approx(ms, rel=profile.fit.decode.worst * 1.01)


@pytest.mark.parametrize(("row", "ms"), {(1, 512): 12.9104, (4, 2048): 181.993, (1, 8192): 203.4834}.items())
def test_prefill_rows_of_the_table_come_out_within_the_stated_error(profile, cost, row, ms):
    batch, context = row
    predicted = 1e3 * cost.step_s(batch * context, False, [(0, 0.0, batch * context**2 / 2)])
    assert predicted == pytest.approx(ms, rel=profile.fit.prefill.worst * 1.01)


def test_tables_have_an_entry_for_every_step(profile, cost):
    limits = profile.limits()
    assert cost.decode_s.size == cost.mixed_s.size == limits.max_num_batched_tokens + 1
    assert cost.kv_read_s.size == limits.max_num_seqs + 1
    assert cost.overlap


@pytest.mark.parametrize("name", list_profiles())
def test_more_work_never_takes_less_time(name):
    profile = load_profile(name)
    cost = profile.step_cost(profile.limits())
    for dense_s in (cost.decode_s, cost.mixed_s):
        assert (np.diff(dense_s) >= -1e-12).all()
    batch = np.arange(1, profile.defaults.max_num_seqs + 1)
    per_context_token = cost.kv_read_s[1:] * batch
    assert (np.diff(per_context_token) >= -1e-5 * per_context_token[1:]).all()  # stored to six digits


def test_steps_are_padded_to_graph_sizes(cost):
    assert cost.decode_s[3] == cost.decode_s[4]
    assert cost.decode_s[65] == cost.decode_s[72]
    assert cost.decode_s[72] < cost.decode_s[73]
    assert cost.decode_s[512] < cost.decode_s[513]
    assert padded(np.array([1, 5, 8, 9, 100]), (8, 16)).tolist() == [8, 8, 8, 16, 100]
    assert padded(np.array([3]), ()).tolist() == [3]


def test_mixed_table_joins_the_decode_table(profile, cost):
    smallest = profile.costs.prefill.tokens[0]
    assert cost.mixed_s[8] == cost.decode_s[8]
    assert cost.mixed_s[smallest] == profile.costs.prefill.dense_s[0]
    assert cost.mixed_s[1] == cost.decode_s[1]


def test_limits_of_the_server_and_of_the_class_differ_on_this_gpu(profile):
    assert profile.limits().max_num_batched_tokens == 16384
    assert profile.limits(server=True).max_num_batched_tokens == 8192
    assert profile.limits().num_blocks * 16 == profile.kv_tokens


def test_synchronous_scheduling_is_a_choice(profile):
    assert not profile.step_cost(replace(profile.limits(), async_scheduling=False)).overlap


def test_tables_of_one_rank_are_refused_for_two(profile):
    with pytest.raises(BadInput, match="lockstep_ranks"):
        profile.step_cost(replace(profile.limits(), lockstep_ranks=2))


def test_bias_band_turns_errors_into_factors(profile):
    band = profile.bias_band()
    assert band.low == pytest.approx(1 / (1 + profile.bias.p90))
    assert band.low < band.median < band.high
    assert band.n == 74
    assert profile.model_copy(update={"bias": None}).bias_band() is None


def test_outside_range_names_what_is_above(profile):
    assert profile.outside_range(max_batch=512, max_context_tokens=32768) == []
    found = profile.outside_range(max_batch=513, max_context_tokens=40000, max_prefill_context_tokens=9000)
    assert [line.split(":")[0] for line in found] == ["decode batch", "decode context", "prefill context"]
    assert "513" in found[0]


def test_shipped_set():
    names = list_profiles()
    for model in ("qwen3-8b", "qwen3-32b", "llama-3.1-8b", "llama-3.3-70b", "qwen3-30b-a3b"):
        for gpu in ("h100", "h200", "a100", "b200"):
            assert any(name.startswith(f"{model}-{gpu}-tp") and name.endswith("bf16") for name in names)


@pytest.mark.parametrize("name", list_profiles())
def test_every_shipped_profile_states_what_a_reader_needs(name):
    profile = load_profile(name)
    assert profile.name == name
    assert profile.bias is not None
    assert profile.bias.n >= 10
    assert profile.fit.decode.n >= 20
    assert {"mixed prefill and decode step"} <= {c.part for c in profile.claims if c.grade == "extrapolated"}
    assert profile.kv_tokens >= 65_536
    assert profile.defaults.max_model_len <= profile.kv_tokens
    assert profile.fit.decode.median < 0.05
    assert profile.fit.decode.worst < 0.15 or profile.cautions

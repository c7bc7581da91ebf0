import numpy as np
import pytest

from rollsim.simulator.costs import StepCost


def cost(**changes):
    fields = {
        "host_s": 0.001,
        "overlap": False,
        "decode_s": np.array([0.0, 0.01, 0.02]),
        "mixed_s": np.array([0.0, 0.03, 0.04]),
        "kv_read_s": np.array([0.0, 1e-6, 2e-6]),
        "prefill_attn_s": 1e-9,
        "context_knots": np.array([0.0, 100.0]),
        "context_slopes": np.array([1.0, 0.0]),
        "context_offsets": np.array([0.0, 100.0]),
    }
    return StepCost(**(fields | changes))


def test_decode_step_by_hand():
    assert cost().step_s(2, True, [(2, 1000.0, 0.0)]) == pytest.approx(0.001 + 0.02 + 2e-6 * 1000)


def test_mixed_step_by_hand():
    assert cost().step_s(2, False, [(1, 500.0, 4e6)]) == pytest.approx(0.001 + 0.04 + 1e-6 * 500 + 1e-9 * 4e6)


def test_cost_of_lockstep_ranks_is_the_slowest_attention_on_all_tokens():
    ranks = [(1, 500.0, 0.0), (2, 1000.0, 0.0), (0, 0.0, 1e5)]
    assert cost().gpu_s(2, True, ranks) == pytest.approx(0.02 + 2e-6 * 1000)


@pytest.mark.parametrize("host_s", [0.0001, 0.5])
def test_asynchronous_scheduling_hides_the_shorter_of_host_and_gpu(host_s):
    overlapped = cost(overlap=True, host_s=host_s)
    gpu_s = overlapped.gpu_s(1, True, [(1, 10.0, 0.0)])
    assert overlapped.step_s(1, True, [(1, 10.0, 0.0)]) == max(host_s, gpu_s)
    assert cost(host_s=host_s).step_s(1, True, [(1, 10.0, 0.0)]) == host_s + gpu_s


def test_empty_step_costs_the_host_alone():
    assert cost().step_s(0, True, []) == 0.001


@pytest.mark.parametrize(("context", "read"), [(0.0, 0.0), (99.5, 99.5), (100.0, 100.0), (5000.0, 100.0)])
def test_context_function_caps_a_sliding_window(context, read):
    assert cost().kv_tokens_read(context) == read


def test_affine_cost():
    made = StepCost.affine(4, 2, base_s=0.01, token_s=0.001, mixed_token_s=0.002, kv_read_s=1e-6)
    assert made.decode_s.tolist() == pytest.approx([0.0, 0.011, 0.012, 0.013, 0.014])
    assert made.mixed_s[4] == pytest.approx(0.018)
    assert made.kv_read_s.size == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decode_s": np.array([0.1, 0.2, 0.3])}, "must be 0"),
        ({"mixed_s": np.array([0.0, 0.2])}, "must be equal"),
        ({"kv_read_s": np.array([0.0, -1.0])}, "finite and >= 0"),
        ({"decode_s": np.array([0.0, np.nan, 1.0])}, "finite and >= 0"),
        ({"host_s": float("inf")}, "host_s"),
        ({"context_knots": np.array([1.0, 100.0])}, "must start at 0"),
        ({"context_slopes": np.array([1.0])}, "one length"),
        ({"kv_read_s": np.zeros((2, 2))}, "vector"),
    ],
)
def test_impossible_costs_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        cost(**change)


def test_arrays_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        cost().decode_s[0] = 1.0

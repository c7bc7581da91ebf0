"""First token and finish of one request by hand, on a roofline: weights read once a step, flops per token.

16 GB of weights (8e9 parameters of 2 bytes) at 2 TB/s are 8 ms a step; 16e9 flops a token at 4e14 flop/s are
40 us a token; the dense time of a step is the larger (Williams, Waterman & Patterson, Roofline, CACM 52 (2009)), so
up to 200 tokens ride for free. 131,072 bytes of KV a token are 65.536 ns to read. Attention takes 1.31 ns a pair.
"""

import numpy as np
import pytest

from rollsim.simulator.costs import StepCost
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.replica import Replica

WEIGHTS_S, TOKEN_S = 16e9 / 2e12, 16e9 / 4e14
KV_S, PAIR_S = 131_072 / 2e12, 1.31e-9
BUDGET = 2048


def roofline(*, host_s=0.001, overlap=False, window=None):
    dense_s = np.maximum(WEIGHTS_S, TOKEN_S * np.arange(BUDGET + 1))
    dense_s[0] = 0.0
    return StepCost(
        host_s=host_s,
        overlap=overlap,
        decode_s=dense_s,
        mixed_s=dense_s,
        kv_read_s=np.full(65, KV_S),
        prefill_attn_s=PAIR_S,
        context_knots=np.array([0.0] if window is None else [0.0, window]),
        context_slopes=np.array([1.0] if window is None else [1.0, 0.0]),
        context_offsets=np.array([0.0] if window is None else [0.0, window]),
    )


def served(cost, *requests, asynchronous=False, **limits):
    fields = {"max_num_seqs": 64, "max_num_batched_tokens": BUDGET, "block_size": 16, "num_blocks": 4096}
    replica = Replica(EngineLimits(**(fields | limits), max_model_len=32_768, async_scheduling=asynchronous), cost)
    for i, (prompt, output) in enumerate(requests):
        replica.dispatch(0.0, i, prompt, output)
    replica.run()
    return replica.results()


def test_a_short_prompt_decodes_at_the_memory_roof():
    """Prompt 100 (below 200 tokens): every one of 50 steps costs the weights; 49 decode steps read 101 ... 149 KV."""
    result = served(roofline(), (100, 50))[0]
    first_s = 0.001 + WEIGHTS_S + PAIR_S * 100 * 50
    assert result.first_token_s == pytest.approx(first_s, rel=1e-12)
    assert result.finish_s == pytest.approx(first_s + 49 * (0.001 + WEIGHTS_S) + KV_S * sum(range(101, 150)), rel=1e-12)


def test_a_long_prompt_is_prefilled_in_chunks_at_the_compute_roof():
    """Prompt 5000 = 2048 + 2048 + 904: pairs of the chunks add up to P^2 / 2; the last chunk gives the first token."""
    chunks = [(2048, 0), (2048, 2048), (904, 4096)]
    assert sum(n * (context + n / 2) for n, context in chunks) == 5000**2 / 2
    result = served(roofline(), (5000, 100))[0]
    first_s = 3 * 0.001 + 5000 * TOKEN_S + PAIR_S * 5000**2 / 2
    decode_s = 99 * (0.001 + WEIGHTS_S) + KV_S * sum(range(5001, 5100))
    assert result.first_token_s == pytest.approx(first_s, rel=1e-12)
    assert result.finish_s == pytest.approx(first_s + decode_s, rel=1e-12)


def test_a_chunk_of_one_token_is_a_decode():
    """Prompt 2049: its last token needs exactly one token in its step, reads 2049 KV tokens and makes no pairs."""
    result = served(roofline(), (2049, 1))[0]
    expected_s = (0.001 + 2048 * TOKEN_S + PAIR_S * 2048**2 / 2) + (0.001 + WEIGHTS_S + KV_S * 2049)
    assert result.first_token_s == result.finish_s == pytest.approx(expected_s, rel=1e-12)


def test_asynchronous_scheduling_hides_a_short_host():
    """Host 1 ms below the GPU's 8 ms and more: it vanishes; the token of a batch arrives when that batch ends."""
    result = served(roofline(overlap=True), (5000, 100), asynchronous=True)[0]
    first_s = 5000 * TOKEN_S + PAIR_S * 5000**2 / 2
    assert result.first_token_s == pytest.approx(first_s, rel=1e-12)
    assert result.finish_s == pytest.approx(first_s + 99 * WEIGHTS_S + KV_S * sum(range(5001, 5100)), rel=1e-12)


def test_asynchronous_scheduling_cannot_hide_a_long_host():
    """Host 100 ms: above the GPU in decode (8 ms) and in each chunk (81.92 ms + 2.7 to 8.2 ms), so it alone counts."""
    result = served(roofline(host_s=0.1, overlap=True), (5000, 100), asynchronous=True)[0]
    assert result.first_token_s == pytest.approx(3 * 0.1, rel=1e-12)
    assert result.finish_s == pytest.approx(102 * 0.1, rel=1e-12)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_growing_kv_overtakes_the_host(asynchronous):
    """Host 8.5 ms: the GPU passes it where KV_S x > 0.5 ms, x > 7629.4, so from context 7630 on.

    Prompt 7600 (four chunks, the last of 1456 tokens, all above the host); decode step j reads 7600 + j.
    """
    result = served(roofline(host_s=0.0085, overlap=True), (7600, 201), asynchronous=asynchronous)[0]
    hidden = [x for x in range(7601, 7801) if KV_S * x > 0.0005]
    assert hidden[0] == 7630
    decode_s = (200 - len(hidden)) * 0.0085 + len(hidden) * WEIGHTS_S + KV_S * sum(hidden)
    first_s = 7600 * TOKEN_S + PAIR_S * 7600**2 / 2
    assert result.finish_s == pytest.approx(first_s + decode_s, rel=1e-12)


def test_a_successor_waits_one_call_longer_under_asynchronous_scheduling():
    """One slot, two requests of prompt 100 and 3 tokens, GPU-bound at 8 ms and a little.

    Synchronous: the second starts when the first ends. Asynchronous: the call that processes the first one's last
    token finds its slot taken (rule 11.3), schedules nothing and costs ``max(host, 0)`` = 1 ms; then the second starts.
    """
    prefill_s, decode_s = WEIGHTS_S + PAIR_S * 100 * 50, 2 * WEIGHTS_S + KV_S * (101 + 102)
    one_s = prefill_s + decode_s
    synchronous = served(roofline(), (100, 3), (100, 3), max_num_seqs=1)
    assert synchronous[0].finish_s == pytest.approx(one_s + 3 * 0.001, rel=1e-12)
    assert synchronous[1].first_token_s == pytest.approx(one_s + 3 * 0.001 + prefill_s + 0.001, rel=1e-12)
    assert synchronous[1].finish_s == pytest.approx(2 * one_s + 6 * 0.001, rel=1e-12)
    overlapped = served(roofline(overlap=True), (100, 3), (100, 3), asynchronous=True, max_num_seqs=1)
    assert overlapped[0].finish_s == pytest.approx(one_s, rel=1e-12)
    assert overlapped[1].first_token_s == pytest.approx(one_s + 0.001 + prefill_s, rel=1e-12)
    assert overlapped[1].finish_s == pytest.approx(2 * one_s + 0.001, rel=1e-12)


def test_a_sliding_window_caps_what_a_step_reads():
    """Window 120: decode steps at contexts 101 ... 299 read min(x, 120) KV tokens."""
    result = served(roofline(window=120.0), (100, 200))[0]
    first_s = 0.001 + WEIGHTS_S + PAIR_S * 100 * 50
    read_s = KV_S * sum(min(x, 120) for x in range(101, 300))
    assert result.finish_s == pytest.approx(first_s + 199 * (0.001 + WEIGHTS_S) + read_s, rel=1e-12)


def test_a_decoding_neighbor_rides_in_a_prefill_step():
    """Mixed steps: prompt chunks and a decode share the budget, and their costs add up.

    The first request (prompt 16, one block) decodes with context 17 while the second one's 3000 tokens are cut to 2032
    in the step of both prefills, and to the rest of 968 in the next.
    """
    results = served(roofline(), (16, 3), (3000, 1))
    step_1_s = 0.001 + 2048 * TOKEN_S + PAIR_S * (16 * 8 + 2032 * 1016)
    step_2_s = 0.001 + 969 * TOKEN_S + PAIR_S * 968 * (2032 + 484) + KV_S * 17
    step_3_s = 0.001 + WEIGHTS_S + KV_S * 18
    assert results[0].first_token_s == pytest.approx(step_1_s, rel=1e-12)
    assert results[1].first_token_s == results[1].finish_s == pytest.approx(step_1_s + step_2_s, rel=1e-12)
    assert results[0].finish_s == pytest.approx(step_1_s + step_2_s + step_3_s, rel=1e-12)

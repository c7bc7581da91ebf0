import numpy as np
import pytest

from rollsim.calibration.decode_fit import fit_decode, fit_line, predict_decode
from rollsim.calibration.monotone import non_decreasing
from rollsim.calibration.prefill_fit import fit_prefill, predict_prefill
from rollsim.calibration.residuals import errors, held_out
from rollsim.calibration.step_table import Rows

CONTEXTS = (512, 1024, 2048, 4096, 8192)
BATCHES = (1, 2, 4, 8, 16)


def decode_rows(dense_s, kv_read_s):
    batch, context = (axis.ravel() for axis in np.meshgrid(BATCHES, CONTEXTS, indexing="ij"))
    return Rows(batch, context, np.array([dense_s(b) + kv_read_s * b * c for b, c in zip(batch, context, strict=True)]))


def prefill_rows(dense_s, attn_s):
    batch, context = (axis.ravel() for axis in np.meshgrid((1, 4), (128, 512, 1024, 2048), indexing="ij"))
    return Rows(
        batch, context, np.array([dense_s(b * c) + attn_s * b * c * c / 2 for b, c in zip(batch, context, strict=True)])
    )


def test_exact_data_is_recovered():
    table, shift = fit_decode(decode_rows(lambda b: 0.005 + 0.0001 * b, 2e-8))
    assert table.batch == BATCHES
    assert table.dense_s == pytest.approx([0.005 + 0.0001 * b for b in BATCHES], rel=1e-5)
    assert table.kv_read_s == pytest.approx([2e-8] * 5, rel=1e-5)
    assert shift == 0


def test_exact_prefill_is_recovered():
    rows = prefill_rows(lambda t: 0.01 + 2e-5 * t, 3e-10)
    table = fit_prefill(rows)
    assert table.attn_s == pytest.approx(3e-10, rel=1e-5)
    assert table.tokens == (128, 512, 1024, 2048, 4096, 8192)
    assert predict_prefill(table, rows) == pytest.approx(rows.step_s, rel=1e-5)


def test_held_out_rows_of_linear_data_have_no_error():
    found = held_out(decode_rows(lambda b: 0.005 + 0.0001 * b, 2e-8), prefill_rows(lambda t: 0.01 + 2e-5 * t, 3e-10))
    assert set(found) == {
        "decode, one context left out",
        "decode, one batch left out",
        "prefill, one token count left out",
    }
    assert all(e.worst < 1e-4 for e in found.values())


def test_coefficients_never_go_negative():
    kv_tokens = np.array([1.0, 2.0, 3.0])
    assert fit_line(kv_tokens, np.array([3.0, 2.0, 1.0]))[1] == 0
    assert fit_line(kv_tokens, np.array([1.0, 3.0, 5.5]))[0] == 0


def test_a_faster_large_batch_is_pooled_and_reported():
    table, shift = fit_decode(decode_rows(lambda b: 0.006 if b == 1 else 0.005, 2e-8))
    assert all(np.diff(table.dense_s) >= 0)
    assert 0.1 < shift < 0.2


def test_batch_with_few_contexts_takes_the_slope_from_below():
    rows = decode_rows(lambda b: 0.005, 2e-8)
    few = rows.where((rows.batch < 16) | (rows.context_tokens == 512))
    table, _ = fit_decode(few)
    assert table.batch == BATCHES
    assert table.kv_read_s[4] == pytest.approx(table.kv_read_s[3])
    assert predict_decode(table, few) == pytest.approx(few.step_s, rel=1e-4)


def test_non_decreasing_pools_only_what_falls():
    assert non_decreasing(np.array([1.0, 2.0, 3.0])).tolist() == [1.0, 2.0, 3.0]
    pooled = non_decreasing(np.array([1.0, 4.0, 2.0, 5.0]))
    # relative least squares: weights 1/16 and 1/4
    assert pooled.tolist() == pytest.approx([1.0, (4 / 16 + 2 / 4) / (1 / 16 + 1 / 4)] * 1 + [2.4, 5.0])


def test_p99_is_the_nearest_rank():
    measured = np.ones(200)
    predicted = 1 + np.concatenate([np.zeros(197), [0.1, 0.2, 0.3]])
    found = errors(predicted, measured)
    assert (found.n, found.p99, found.worst, found.signed_median) == (200, pytest.approx(0.1), pytest.approx(0.3), 0.0)

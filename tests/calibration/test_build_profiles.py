import gzip
import json
from pathlib import Path

import pytest

from rollsim.calibration.bias import EXCLUDED, find_bias, read_points
from rollsim.calibration.build_profiles import build_profile, build_profiles, requests, write_profiles
from rollsim.calibration.step_table import read_step_table
from rollsim.simulator import facts
from rollsim.simulator.profile_store import SHIPPED, list_profiles
from rollsim.traces.errors import BadInput

SHARED = Path(__file__).parents[2] / ".." / "shared" / "data" / "decode"
TABLE, CHECKS = SHARED / "aic_derived_steps.csv.gz", SHARED / "aic_tpot_check_h100_h200.csv"
needs_table = pytest.mark.skipif(not TABLE.exists(), reason="the shared step-time table is not beside this checkout")

HEAD = "system,backend,backend_version,model,dtype,tp,phase,batch_size,context_tokens,step_ms\n"


def write_table(path, rows):
    path.write_text(HEAD + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def small_rows(model="Qwen/Qwen3-8B"):
    start = ("h100_sxm", "vllm", "0.24.0", model, "bf16", 1)
    for batch in (1, 2, 4):
        for context in (512, 1024, 2048, 4096):
            yield (*start, "decode", batch, context, 5 + 0.1 * batch + 1e-5 * batch * context)
    for batch in (1, 4):
        for context in (128, 512, 2048):
            tokens = batch * context
            yield (*start, "prefill", batch, context, 8 + 0.01 * tokens + 1e-7 * tokens * context / 2)


@needs_table
def test_shipped_profiles_are_what_the_table_gives(tmp_path):
    paths = write_profiles(build_profiles(TABLE, CHECKS), tmp_path)
    assert sorted(path.stem for path in paths) == list_profiles()
    for path in paths:
        assert json.loads(path.read_text()) == json.loads((SHIPPED / path.name).read_text()), path.name


@needs_table
def test_rows_whose_kv_does_not_fit_are_dropped():
    table = read_step_table(TABLE)
    request = next(r for r in requests(table) if r.name == "qwen3-8b-h100-tp1-bf16")
    profile = build_profile(table, request, [])
    assert profile.fit.rows_used + profile.fit.rows_dropped == 69 + 12
    assert profile.fitted_range.decode_kv_tokens[1] <= profile.kv_tokens
    assert profile.bias is None


@needs_table
def test_bias_takes_the_nearest_points_and_says_so():
    points = read_points(CHECKS)
    assert not any((point.model, point.system, point.backend) in EXCLUDED for point in points)
    exact = find_bias(points, facts.model("llama-3.3-70b"), "h100_sxm", "vllm")
    assert (exact.match, exact.n) == ("same model, engine and GPU", 30)
    elsewhere = find_bias(points, facts.model("qwen3-32b"), "h200_sxm", "vllm")
    assert (elsewhere.match, elsewhere.n) == ("same model and engine", 74)
    stand_in = find_bias(points, facts.model("llama-3.1-8b"), "h200_sxm", "vllm")
    assert (stand_in.match, stand_in.n) == ("stand-in model, same engine", 36)
    assert "left out" in stand_in.origin
    assert find_bias(points, facts.model("qwen3-8b"), "h100_sxm", "other") is None


def test_small_table_builds_and_says_what_it_is(tmp_path):
    (profile,) = build_profiles(write_table(tmp_path / "steps.csv", small_rows()))
    assert profile.name == "qwen3-8b-h100-tp1-bf16"
    assert profile.costs.decode.batch == (1, 2, 4)
    assert profile.costs.decode.kv_read_s == pytest.approx([1e-8] * 3, rel=1e-4)
    assert profile.costs.prefill.attn_s == pytest.approx(1e-10, rel=1e-4)
    assert profile.fit.decode.worst < 1e-4


def test_gzip_and_plain_give_the_same_tables(tmp_path):
    plain = write_table(tmp_path / "steps.csv", small_rows())
    packed = tmp_path / "steps.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert build_profiles(packed)[0].costs == build_profiles(plain)[0].costs


def test_missing_columns_all_at_once(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text("system,backend,backend_version,model,dtyp,tp,phase,batch,context_tokens,step_ms\n")
    with pytest.raises(BadInput) as caught:
        build_profiles(path)
    assert {(f.place, f.closest) for f in caught.value.faults} == {
        ("column dtype", "dtyp"),
        ("column batch_size", "batch"),
    }


def test_bad_cells_all_at_once(tmp_path):
    rows = [list(row) for row in small_rows()]
    rows[0][9], rows[3][5] = "slow", "one"
    with pytest.raises(BadInput) as caught:
        build_profiles(write_table(tmp_path / "steps.csv", rows))
    assert [fault.place for fault in caught.value.faults] == ["line 2, step_ms", "line 5, tp"]


@pytest.mark.parametrize(("column", "value", "message"), [(6, "decoding", "decode"), (9, "-1", "not positive")])
def test_impossible_rows_are_named(tmp_path, column, value, message):
    rows = [list(row) for row in small_rows()]
    rows[1][column] = value
    with pytest.raises(BadInput, match=message) as caught:
        build_profiles(write_table(tmp_path / "steps.csv", rows))
    assert "line 3" in caught.value.faults[0].place


def test_unknown_models_and_missing_files_are_refused(tmp_path):
    with pytest.raises(BadInput, match="known model"):
        build_profiles(write_table(tmp_path / "steps.csv", small_rows("someone/else")))
    with pytest.raises(BadInput, match="cannot be read"):
        build_profiles(tmp_path / "absent.csv")

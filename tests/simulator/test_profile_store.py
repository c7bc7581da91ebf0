import json
import re

import pytest

from rollsim.simulator.profile_report import list_text, show_text, summary
from rollsim.simulator.profile_store import SHIPPED, list_profiles, load_profile, parse_profile
from rollsim.traces.errors import BadInput
from tests.simulator.published import PAGE

NAME = "llama-3.3-70b-h100-tp4-bf16"


def faults(document):
    with pytest.raises(BadInput) as caught:
        parse_profile(document if isinstance(document, str) else json.dumps(document), "mine.json")
    return {fault.place: fault for fault in caught.value.faults}


@pytest.fixture
def document():
    return json.loads((SHIPPED / f"{NAME}.json").read_text())


@pytest.mark.parametrize("name", list_profiles())
def test_writing_and_reading_changes_nothing(name, tmp_path):
    loaded = load_profile(name)
    path = tmp_path / "copy.json"
    loaded.write(path)
    assert load_profile(path) == loaded
    assert path.read_bytes() == (SHIPPED / f"{name}.json").read_bytes()
    assert path.stat().st_size < 20_000


def test_all_faults_at_once_with_paths_and_closest(document):
    document["gpuu"] = 1
    document["scheduling"] = "asink"
    document["defaults"]["block_siz"] = document["defaults"].pop("block_size")
    document["costs"]["decode"]["dense_s"][2] = -1.0
    document["costs"]["prefill"]["attn_s"] = "fast"
    document["claims"][1]["grade"] = "guessed"
    found = faults(document)
    assert set(found) == {
        "$.gpuu",
        "$.scheduling",
        "$.defaults.block_siz",
        "$.defaults.block_size",
        "$.costs.decode.dense_s[2]",
        "$.costs.prefill.attn_s",
        "$.claims[1].grade",
    }
    assert found["$.gpuu"].closest == "gpu"
    assert found["$.scheduling"].closest == "async"
    assert found["$.defaults.block_siz"].closest == "block_size"
    assert found["$.costs.decode.dense_s[2]"].given == -1.0


def test_faults_of_the_train_and_sync_sections_are_named_all_at_once(document):
    log = {"grade": "measured", "how": "own log"}
    document["train"] = {
        "mfu": {"value": 1.5, **log},
        "forward_mfu": {"value": 0, **log},
        "attention_mfu": 0.5,
        "exposed_communication": {"value": 2, **log},
        "link_bytes_per_s": {"value": 1e9, "grade": "measurd", "how": ""},
        "mfuu": {"value": 0.5, **log},
    }
    rate = {"value": 1e9, **log}
    document["sync"] = {
        "paths": {
            "ncl": {"fixed_s": rate, "bytes_per_s": rate},
            "nccl": {"fixed_s": {"value": -1, **log}, "bytes_per_s": {"value": 0, **log}},
            "delta": {"fixed_s": 1, "byts_per_s": rate},
            "p2p": {"fixed_s": {"valu": 1, **log}, "bytes_per_s": {"value": float("inf"), **log}},
        },
        "switch_fixed_s": {"value": "long", **log},
    }
    found = faults(document)
    assert set(found) == {
        "$.train.mfu.value",
        "$.train.forward_mfu.value",
        "$.train.attention_mfu",
        "$.train.exposed_communication.value",
        "$.train.link_bytes_per_s.grade",
        "$.train.mfuu",
        "$.sync.paths.ncl",
        "$.sync.paths.nccl.fixed_s.value",
        "$.sync.paths.nccl.bytes_per_s.value",
        "$.sync.paths.delta.fixed_s",
        "$.sync.paths.delta.bytes_per_s",
        "$.sync.paths.delta.byts_per_s",
        "$.sync.paths.p2p.fixed_s.value",
        "$.sync.paths.p2p.fixed_s.valu",
        "$.sync.paths.p2p.bytes_per_s.value",
        "$.sync.switch_fixed_s.value",
    }
    near = {place.removeprefix("$."): fault.closest for place, fault in found.items() if fault.closest}
    assert near == {
        "train.link_bytes_per_s.grade": "measured",
        "train.mfuu": "mfu",
        "sync.paths.ncl": "nccl",
        "sync.paths.delta.byts_per_s": "bytes_per_s",
        "sync.paths.p2p.fixed_s.valu": "value",
    }
    assert "checkpoint_engine" in found["$.sync.paths.ncl"].allowed
    assert (found["$.train.mfu.value"].given, found["$.sync.paths.nccl.bytes_per_s.value"].given) == (1.5, 0)
    assert "less than or equal to 1" in found["$.train.mfu.value"].message


def test_an_unknown_key_inside_a_mapping_of_any_section_has_a_closest(document):
    name = next(iter(document["fit"]["decode_regions"]))
    document["fit"]["decode_regions"][name]["medain"] = 1
    document["claims"][0]["grad"] = "fitted"
    found = faults(document)
    assert found[f"$.fit.decode_regions.{name}.medain"].closest == "median"
    assert found["$.claims[0].grad"].closest == "grade"


def test_train_and_sync_sections_are_written_and_read_back(document, tmp_path):
    log = {"grade": "measured", "how": "own log"}
    document["train"] = {"mfu": {"value": 0.4, **log}}
    document["sync"] = {"paths": {"nccl": {"fixed_s": {"value": 1, **log}, "bytes_per_s": {"value": 1e10, **log}}}}
    profile = parse_profile(json.dumps(document), "mine.json")
    profile.write(tmp_path / "mine.json")
    assert load_profile(tmp_path / "mine.json") == profile


def test_the_example_on_the_page_of_costs_is_a_profile(document):
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    profile = parse_profile(json.dumps(document | json.loads("{" + example + "}")), "mine.json")
    assert profile.train.mfu
    assert profile.train.mfu.grade == "measured"
    assert profile.sync.paths
    assert profile.sync.paths["nccl"].seconds(18e9) == 1.5 + 2


@pytest.mark.parametrize(
    ("change", "place", "message"),
    [
        (lambda d: d["costs"]["decode"]["dense_s"].pop(), "$.costs.decode", "9 values for 10"),
        (lambda d: d["costs"]["decode"]["batch"].reverse(), "$.costs.decode", "increase strictly, but [0] is 512 and"),
        (lambda d: d["costs"]["context"]["knots"].__setitem__(0, 5), "$.costs.context", "must be 0, given 5.0"),
        (lambda d: d["costs"]["context"].update(knots=[]), "$.costs.context", "knots: 0 given, there may be 1 to"),
        (lambda d: d["bias"].update(p10=0.5), "$.bias", "p10 <= median <= p90, given 0.5,"),
        (lambda d: d.update(schema_version=2), "$.schema_version", "unknown schema version"),
        (lambda d: d.pop("schema_version"), "$.schema_version", "missing"),
        (lambda d: d["kv"].update(num_blocks=0), "$.kv.num_blocks", "greater than 0"),
    ],
)
def test_inconsistent_parts_are_named(document, change, place, message):
    change(document)
    assert message in str(faults(document)[place])


@pytest.mark.parametrize("version", [99, 0, "1", 1.0, True, None, [1]])
def test_another_schema_version_hides_no_other_fault(document, version):
    document["schema_version"] = version
    document["scheduling"] = "asink"
    assert list(faults(document)) == ["$.schema_version", "$.scheduling"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff\xfe\x00", "byte 0: not UTF-8 text"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5_000, "thousands of digits"),
        (None, "cannot be read: Is a directory"),
    ],
)
def test_a_file_that_is_no_text_is_told_in_plain_words(tmp_path, content, told):
    path = tmp_path / "p.json"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        load_profile(path)
    (fault,) = caught.value.faults
    assert str(fault).removeprefix(f"{path}: ").endswith(told)
    assert "Errno" not in str(fault)


def test_the_flag_that_named_the_profile_is_told():
    with pytest.raises(BadInput, match="--profile: unknown profile; given 'nope'"):
        load_profile("nope", "--profile")


def test_not_json_says_where():
    assert "line 2" in next(iter(faults('{"a": 1,\n oops}')))


def test_not_an_object():
    assert "$" in faults([1, 2])


def test_unknown_name_says_the_closest():
    with pytest.raises(BadInput) as caught:
        load_profile("llama-3.3-70b-h100-tp4-bf61")
    assert caught.value.faults[0].closest == NAME


def test_missing_file_says_the_closest(tmp_path):
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(BadInput, match="no such file") as caught:
        load_profile(tmp_path / "mime.json")
    assert caught.value.faults[0].closest.endswith("mine.json")


def test_profiles_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        load_profile(NAME).name = "other"


def test_list_keeps_names_that_contain_a_text():
    assert list_profiles("8b-H100")
    with pytest.raises(BadInput, match="no shipped profile"):
        list_profiles("h300")


def test_texts_fit_80_columns_and_say_what_rests_on_what():
    shown = show_text(load_profile(NAME))
    listed = list_text([summary(load_profile(name)) for name in list_profiles()])
    assert max(len(line) for line in [*shown.splitlines(), *listed.splitlines()]) <= 80
    for word in ("fitted", "extrapolated", "assumed", "known bias", "fitted range", "same architecture"):
        assert word in " ".join(shown.split())

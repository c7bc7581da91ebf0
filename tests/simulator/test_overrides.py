"""``a.b=value`` words over a config."""

import pytest

from rollsim.simulator.overrides import with_overrides
from rollsim.traces.errors import BadInput

DOCUMENT = {
    "train": {"steps": 8},
    "policies": {
        "routing": "least_load",
        "admission": [{"use": "staleness_quota", "eta": 4}, "fixed_batch"],
    },
}


def changed(*words):
    return with_overrides(DOCUMENT, words)


def faults(*words):
    with pytest.raises(BadInput) as error:
        changed(*words)
    return [str(fault) for fault in error.value.faults]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("train.steps=4", 4),
        ("train.mfu=0.5", 0.5),
        ("train.reference=true", True),
        ("train.publish=mini_batch", "mini_batch"),
        ("train.steps=null", None),
        ("train.name=a=b", "a=b"),
    ],
)
def test_values_are_yaml(word, value):
    key = word.partition("=")[0].split(".")[1]
    assert changed(word)["train"][key] == value


def test_lists_and_nested_settings():
    made = changed("policies.selection=[{use: drop_stale, eta: 2}]")
    assert made["policies"]["selection"] == [{"use": "drop_stale", "eta": 2}]
    assert changed("policies.routing.x=1")["policies"]["routing"] == {"use": "least_load", "x": 1}


def test_a_number_picks_an_entry():
    assert changed("policies.admission.0.eta=2")["policies"]["admission"][0] == {"use": "staleness_quota", "eta": 2}
    made = changed("policies.admission.1.ahead=1")["policies"]["admission"]
    assert made == [{"use": "staleness_quota", "eta": 4}, {"use": "fixed_batch", "ahead": 1}]
    assert changed("policies.admission.1=backlog")["policies"]["admission"][1] == "backlog"


def test_later_words_win_and_sections_are_made():
    assert changed("train.steps=4", "train.steps=5")["train"]["steps"] == 5
    assert changed("sync.path=disk")["sync"] == {"path": "disk"}


def test_the_document_is_left_alone():
    before = repr(DOCUMENT)
    changed("policies.admission.0.eta=2", "policies.routing.x=1", "train.steps=1")
    assert repr(DOCUMENT) == before


def test_every_word_that_cannot_be_is_named():
    found = faults("train.steps", "=3", "train..x=3", "train.steps=[", "train.steps.x=3", "policies.admission.2.eta=1")
    assert len(found) == 6
    assert "train.steps is not a section" in found[4]
    assert "policies.admission has 2 entries" in found[5]
    assert "0 to 1" in found[5]


@pytest.mark.parametrize("key", ["x", "-1", "2", "²"])
def test_an_entry_is_a_whole_number(key):
    assert "policies.admission has 2 entries" in faults(f"policies.admission.{key}=1")[0]


def test_a_plain_value_is_no_section_outside_policies():
    assert faults("policies.routing.use.x=1", "train.steps.use=1")

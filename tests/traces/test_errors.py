"""A fault reads as one line: where, what, what is allowed, what was probably meant."""

import pytest

from rollsim.traces.errors import BadInput, Fault, closest


def test_a_fault_is_one_line():
    fault = Fault("run.yaml", "engine.max_seqs", "12\n8", "a whole number", "max_num_seqs", "not a number")
    assert str(fault) == (
        "run.yaml: engine.max_seqs: not a number; given '12\\n8'; allowed: a whole number"
        " (did you mean 'max_num_seqs'?)"
    )
    assert "\n" not in str(Fault("a", "b", message="two\nlines"))


def test_bad_input_carries_every_fault():
    faults = [Fault("a", message="one"), Fault("b", message="two")]
    assert str(BadInput(faults)) == "a: one\nb: two"
    assert BadInput(iter(faults)).faults == faults
    assert BadInput(faults[0]).faults == faults[:1]
    with pytest.raises(ValueError, match="at least one"):
        BadInput([])


@pytest.mark.parametrize(
    ("given", "found"), [("promt", "prompt"), ("PROMPT", "prompt"), ("zzz", None), (None, None), (17, None)]
)
def test_closest(given, found):
    assert closest(given, ["prompt", "output"]) == found

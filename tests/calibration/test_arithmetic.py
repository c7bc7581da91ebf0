"""Problems and verifier of our own trace."""

import re

import pytest

from rollsim.calibration.arithmetic_rollouts import problems, reward


def test_every_problem_has_its_answer():
    asked = list(problems(240))
    assert len({problem.question for problem in asked}) > 150
    for problem in asked:
        term = re.fullmatch(r"What is ([\d+*\- ]+)\?", problem.question)
        assert term is not None
        assert eval(term[1]) == problem.answer
        assert problem.answer >= 0 or "-" in term[1]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("3 + 4 = 7", True),
        ("The answer is 7.", True),
        ("7 is what I get first, then 8", False),
        ("It is 1,007", False),
        ("", False),
        ("no number", False),
        ("-7", False),
    ],
)
def test_the_last_number_counts(text, right):
    assert reward(text, 7) == float(right)
    assert reward("so it is 1,234.", 1234) == 1.0

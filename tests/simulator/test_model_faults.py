"""Faults of models, wherever in a document they are: the path as the user wrote it, and what may stand there."""

from typing import Annotated, Any

import pytest
from pydantic import Discriminator, Tag, ValidationError

from rollsim.simulator.model_faults import model_faults
from rollsim.simulator.profile_parts import Part


class Leaf(Part):
    size: int


def _kind(given: Any) -> str:
    return "leaf" if isinstance(given, dict) else "plain"


class Tree(Part):
    plain: Leaf = Leaf(size=1)
    perhaps: Leaf | None = None
    several: tuple[Leaf, ...] = ()
    perhaps_several: tuple[Leaf, ...] | None = None
    named: dict[str, Leaf] = {}  # noqa: RUF012 - a model's default
    either: Annotated[Annotated[float, Tag("plain")] | Annotated[Leaf, Tag("leaf")], Discriminator(_kind)] = 0.0


class Wood(Part):
    trees: list[Tree]


def faults(given):
    with pytest.raises(ValidationError) as error:
        Wood.model_validate({"trees": [given]})
    return [str(fault) for fault in model_faults(error.value, Wood, "w")]


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"plain": {"size": 1, "sice": 2}}, "plain.sice"),
        ({"perhaps": {"size": 1, "sice": 2}}, "perhaps.sice"),
        ({"several": [{"size": 1}, {"size": 1, "sice": 2}]}, "several[1].sice"),
        ({"perhaps_several": [{"size": 1, "sice": 2}]}, "perhaps_several[0].sice"),
        ({"named": {"oak": {"size": 1, "sice": 2}}}, "named.oak.sice"),
        ({"either": {"size": 1, "sice": 2}}, "either.sice"),
    ],
)
def test_an_unknown_key_is_told_what_there_is(given, place):
    assert faults(given) == [f"w: trees[0].{place}: unknown key; allowed: size (did you mean 'size'?)"]


def test_members_of_a_union_have_no_name_of_their_own():
    assert faults({"either": "x"})[0].startswith("w: trees[0].either: Input should be a valid number")
    assert faults({"either": {}}) == ["w: trees[0].either.size: missing"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"plain": 3}, "w: trees[0].plain: not a section of settings; given 3; allowed: key: value"),
        ({"plain": [1, 2]}, "w: trees[0].plain: not a section of settings; given 'list'; allowed: key: value"),
        ({"plain": "x"}, "w: trees[0].plain: not a section of settings; given 'x'; allowed: key: value"),
    ],
)
def test_what_is_no_section_is_told_so(given, told):
    assert faults(given) == [told]

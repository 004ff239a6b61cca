"""Grids from options: every combination once, in order; wrong options are refused by name."""

from math import prod

import pytest
from hypothesis import given, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.study.axes import axis_of, grid, sizes_of

WORDS = st.text("abc0123", min_size=1, max_size=3)
OPTIONS = st.dictionaries(WORDS, st.lists(WORDS, min_size=1, max_size=4, unique=True), max_size=3)


@given(OPTIONS)
def test_a_grid_is_every_combination_once(values: dict[str, list[str]]) -> None:
    axes, points = grid([f"{field}={','.join(own)}" for field, own in values.items()])
    assert {axis.field for axis in axes} == {field for field, own in values.items() if len(own) > 1}
    assert len({point.overrides for point in points}) == len(points) == prod(map(len, values.values()))
    assert all({text.partition("=")[0] for text in point.overrides} == set(values) for point in points)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("plan.tp=1,2,4", ("1", "2", "4")),
        ("a=[1,2],[3]", ("[1,2]", "[3]")),
        ("a={kind: normal, cv: 1},none", ("{kind: normal, cv: 1}", "none")),
        ("a='x,y',z", ("'x,y'", "z")),
    ],
)
def test_commas_inside_brackets_and_quotes_belong_to_a_value(option: str, values: tuple[str, ...]) -> None:
    assert axis_of(option).values == values


@pytest.mark.parametrize(
    ("option", "what"), [("plan.tp", "expected"), ("=1", "expected"), ("a=1,,2", "empty"), ("a=1,1", "twice")]
)
def test_wrong_options_are_refused(option: str, what: str) -> None:
    with pytest.raises(DataError, match=what):
        axis_of(option)


def test_a_field_stands_once_and_a_grid_is_bounded() -> None:
    with pytest.raises(DataError, match="plan.tp is set twice"):
        grid(["plan.tp=1,2", "plan.tp=4"])
    many = ",".join(map(str, range(400)))
    with pytest.raises(DataError, match="more than 100,000 points"):
        grid([f"a={many}", f"b={many}"])


def test_sizes_are_lists_or_doublings() -> None:
    assert sizes_of("8:100") == (8, 16, 32, 64)
    assert sizes_of("512,8") == (8, 512)
    for text in ("", "8:4", "x", "8,8", "0", "-1:8", "8:", "1:99999999999999999999"):
        with pytest.raises(DataError, match="--gpus"):
            sizes_of(text)

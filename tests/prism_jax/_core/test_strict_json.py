"""JSON whose objects have every key once."""

import json

import pytest
from hypothesis import given, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.core.read_file import parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(value=VALUES)
def test_what_json_writes_is_read(value: object) -> None:
    assert parse_json(json.dumps(value), "x") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "b": 2, "a": 1}', "x: the key 'a' is there twice"),
        ('[{"b": {"c": 1, "c": 2}}]', "x: the key 'c' is there twice"),
        ('{"a":\n 1 2}', "x:2:4 is not JSON"),
        ("[" * 100_000, "x is not JSON"),
        ("9" * 5000, "x is not JSON"),
        ("", "x:1:1 is not JSON"),
    ],
)
def test_everything_else_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_json(text, "x")

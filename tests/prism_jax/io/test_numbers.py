"""Numbers of files: what every tool reads as the same number, and nothing else."""

import math

import pytest
from hypothesis import given, strategies as st

from prism_jax.tables.csv_rows import is_plain, number_of


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_what_python_prints_is_read_to_the_last_digit(value: float) -> None:
    assert number_of(f" {value!r} ") == value


@given(value=st.integers(-(10**40), 10**40))
def test_whole_numbers_are_read(value: int) -> None:
    assert number_of(str(value)) == float(value)


@pytest.mark.parametrize(
    "text", ["1_0", "١٢", "１２", "²", "0x10", "nan", "inf", "1e", "1.2.3", "", ".", "1,5", "1" * 101]
)
def test_what_only_some_tools_read_is_no_number(text: str) -> None:
    assert math.isnan(number_of(text))


@given(text=st.text(st.characters(codec="utf-8"), max_size=8))
def test_a_number_is_plain_and_python_agrees(text: str) -> None:
    if not math.isnan(number_of(text)):
        assert is_plain(text.strip())
        assert number_of(text) == float(text)


def test_too_large_a_number_is_infinite() -> None:
    assert number_of("1e999") == math.inf

"""Prices: one for all devices, or one for each."""

import pytest

from prism_jax.core.errors import DataError, SpecError
from prism_jax.result.prices import checked, price_of, prices_of


def test_forms() -> None:
    assert prices_of([]) is None
    assert prices_of(["2.5"]) == 2.5
    named = prices_of(["H200=2.5", "b200 = 4"])
    assert named == {"h200": 2.5, "b200": 4.0}
    assert [price_of(named, name) for name in ("h200", "a100-80gb")] == [2.5, None]
    assert price_of(2.5, "anything") == 2.5
    assert checked({"H200": 1.0}) == {"h200": 1.0}


@pytest.mark.parametrize(
    "texts", [["0"], ["-1"], ["inf"], ["nan"], ["x"], ["h200="], ["=2"], ["1", "2"], ["h200=1", "h200=2"]]
)
def test_what_is_no_price_is_refused(texts: list[str]) -> None:
    with pytest.raises(DataError, match="--price"):
        prices_of(texts)


def test_prices_from_python_are_checked() -> None:
    with pytest.raises(DataError, match="price 0"):
        checked(0.0)
    with pytest.raises(SpecError, match="unknown device"):
        checked({"foo": 1.0})

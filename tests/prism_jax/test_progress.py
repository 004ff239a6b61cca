"""One signature of progress for everything that takes long."""

import pytest

from prism_jax.core.processes import Progress, part_of, silent


def test_part_of_maps_shares_and_passes_the_text_on():
    told: list[tuple[float, str]] = []

    def progress(done: float, what: str = "", /) -> None:
        told.append((done, what))

    part = part_of(progress, 0.5, 0.9)
    part(0.0, "first")
    part(0.5)
    part(1.0, "last")
    assert told == [(0.5, "first"), (pytest.approx(0.7), ""), (pytest.approx(0.9), "last")]


def test_a_function_of_the_share_alone_serves_where_nothing_else_is_told():
    shares: list[float] = []
    part_of(shares.append, 0.0, 0.5)(1.0)  # pyright: ignore[reportArgumentType]
    assert shares == [0.5]


def test_silent_takes_both_and_is_progress():
    silent(0.5)
    silent(0.5, "halfway")
    assert isinstance(silent, Progress)

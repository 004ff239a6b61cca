"""Registries that several threads use first at the same time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from prism_jax.core.registry import Registry


def test_every_thread_finds_all_items_in_their_order():
    names = [f"{number:02}" for number in range(20)]

    def shipped() -> Iterator[str]:
        for name in names:
            time.sleep(0.001)  # as an import takes
            yield name

    registry = Registry("number", shipped, name_of=lambda item: item)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: (registry.names, "19" in registry), range(8)))
    assert found == [(tuple(names), True)] * 8


def test_items_that_cannot_be_made_are_tried_again_and_may_ask_for_those_before_them():
    broken = [True]

    def shipped() -> Iterator[str]:
        yield "a"
        assert registry.names == ("a",)
        if broken:
            raise ValueError("not now")
        yield "b"

    registry: Registry[str] = Registry("letter", shipped, name_of=lambda item: item)
    with pytest.raises(ValueError, match="not now"):
        registry.named("b")
    broken.clear()
    assert registry.named("b") == "b"

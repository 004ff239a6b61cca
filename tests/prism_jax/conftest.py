"""Tests of the package run under strict promotion: no silent change of dtype, no silent new axis."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def strict_promotion() -> Iterator[None]:
    """Only where JAX is loaded already: tests that need none must not pay for it."""
    jax = sys.modules.get("jax")
    if jax is None:
        yield
        return
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield

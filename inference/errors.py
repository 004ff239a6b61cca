"""Errors of fitting. All are `PrismError`s: what is wrong, where, and the remedy."""

from __future__ import annotations

from prism_jax.errors import PrismError


class DataError(PrismError):
    """Measurements that cannot be read or used."""


class FitError(PrismError):
    """A fit that cannot be made, or cannot be used for what was asked."""

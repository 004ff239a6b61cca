"""Data of a model, split into the arrays that are traced and the rest, which is static."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

Data = TypeVar("Data")
Arrays = dict[str, Any]


def traced(data: Data) -> tuple[Arrays, Callable[[Mapping[str, Any]], Data]]:
    """The numeric arrays of `data` by field name, and the function that puts (traced) arrays back in their places."""
    arrays = {name: value for name, value in values(data).items() if is_numeric(value)}
    return arrays, lambda given: replace(data, **given)  # pyright: ignore[reportArgumentType, reportCallIssue]


def values(data: Any) -> dict[str, Any]:
    """Field name -> value."""
    return {field.name: getattr(data, field.name) for field in fields(data)}


def is_numeric(value: Any) -> bool:
    """Whether `value` is an array of numbers or truth values (text stays on the host)."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"

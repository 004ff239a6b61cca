"""What a family of models says of the rows that it knows: rules from names to models."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from experiments.nonllm_tables.row import TableRow
from prism_jax.workload.base.workload import Workload


class Made(NamedTuple):
    """A model, and what of the plan belongs to it.

    Attributes:
        family: for figures: encoder, cnn, ...
        model: what is trained.
        seq_len: tokens of a sample; 0: samples are no sequences.
        software: choices of `Software` that the framework of the row implies.
    """

    family: str
    model: Workload
    seq_len: int = 0
    software: tuple[tuple[str, str], ...] = ()


class ModelOf(NamedTuple):
    """A rule.

    Attributes:
        pattern: of names, matched from their beginning.
        make: the model of a row; None: not this one.
    """

    pattern: str
    make: Callable[[TableRow], Made | None]

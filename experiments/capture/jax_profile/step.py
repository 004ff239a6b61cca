"""A small transformer on a mesh of 2 x 2 x 2, to be captured and to be run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples" / "capture"))

from jax_transformer import Model, build  # pyright: ignore[reportMissingImports]

SIZES = Model(n_layers=3, hidden=64, n_heads=4, kv_heads=4, ffn=128, vocab=256)


def train_step() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The step and its arguments."""
    return build(SIZES, dp=2, fsdp=2, tp=2, batch=8, seq_len=32)

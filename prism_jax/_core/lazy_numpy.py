"""NumPy, imported on first use: for modules that commands without arithmetic load too (`show`, `--help`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
else:
    from .lazy import LazyModule

    np = LazyModule("numpy")

__all__ = ["np"]

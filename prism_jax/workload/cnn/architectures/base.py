"""Architecture: a network by name, as a function from the size of an image and the number of classes to its layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..layers import Network

Writes = Callable[[int, int], Network]


@dataclass(frozen=True)
class Architecture:
    """One convolutional network.

    Attributes:
        name: as in `architecture: name` of a job file.
        writes: (image size, classes) -> its layers.
        image_size: rows and columns it is usually trained with.
        n_classes: the same.
        source: paper and implementation.
    """

    name: str
    writes: Writes
    image_size: int = 224
    n_classes: int = 1000
    source: str = ""

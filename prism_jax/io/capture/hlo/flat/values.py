"""Values of a program: the memory that they lie in and the operation that made them, wherever names take them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from .....workload.captured.chains import Access


class Value(NamedTuple):
    """An array, or a part of one, as whoever reads it finds it.

    Attributes:
        storage: name of the memory.
        maker: number of the operation that made it; None: it is from outside.
        n_bytes: of device memory, in the dtype of the program.
        start: where in that memory it begins, bytes.
        slices: what the slices of it are, where a loop writes one in every run.
    """

    storage: Hashable
    maker: int | None
    n_bytes: float
    start: int = 0
    slices: Slices | None = None

    @property
    def access(self) -> Access:
        """The reading of it."""
        makers = frozenset() if self.maker is None else frozenset({self.maker})
        return Access(makers, self.storage, self.start, self.start + round(self.n_bytes), self.n_bytes)


class Slices(NamedTuple):
    """Equal parts of an array.

    Attributes:
        one: what is written to a part.
        n_bytes: of a part, as the text has it.
    """

    one: Value
    n_bytes: float


def outside(storage: Hashable, n_bytes: float) -> Value:
    """A value that no operation of the pass makes."""
    return Value(storage, None, n_bytes)

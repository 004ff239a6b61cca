"""EmbeddingTable: one table of a recommendation model."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...bounds import MOST_COUNT, MOST_WIDTH, check_bounds
from ...errors import Problem, SpecError
from .reuse import Reuse, Uniform

MOST_ROWS = 2**40
MOST_POOLING = 2.0**20
MOST_SPREAD = 2.0


@dataclass(frozen=True)
class EmbeddingTable:
    """One embedding table; the vectors of a sample's lookups are summed.

    Attributes:
        name: unique in its model.
        rows: vectors.
        dim: elements of a vector.
        pooling: mean lookups of a sample.
        element_bytes: of a stored element: 4 or 2.
        reuse: how the lookups of a batch are spread over the rows.
        spread: standard deviation over mean of a step's lookups, from step to step; None: not stated.
    """

    name: str
    rows: int
    dim: int
    pooling: float = 1.0
    element_bytes: int = 4
    reuse: Reuse = field(default_factory=Uniform)
    spread: float | None = None

    def __post_init__(self) -> None:
        owner = f"table {self.name}"
        for name in ("rows", "dim", "element_bytes"):
            if getattr(self, name) < 1:
                raise SpecError.of(Problem(name, f"{getattr(self, name)}, but it must be at least 1"), owner)
        check_bounds(SpecError, owner, MOST_ROWS, rows=self.rows)
        check_bounds(SpecError, owner, MOST_WIDTH, dim=self.dim)
        if not 0.0 < self.pooling <= MOST_POOLING:
            text = f"{self.pooling}, but it must be above 0 and at most {MOST_POOLING:,.0f}"
            raise SpecError.of(Problem("pooling", text), owner)
        if self.spread is not None and not 0.0 <= self.spread <= MOST_SPREAD:
            raise SpecError.of(Problem("spread", f"{self.spread}, but it must be 0 to {MOST_SPREAD:g}"), owner)
        if self.element_bytes not in (1, 2, 4, 8):
            raise SpecError.of(Problem("element_bytes", f"{self.element_bytes}, but it must be 1, 2, 4 or 8"), owner)
        check_bounds(SpecError, owner, MOST_COUNT, parameters=self.n_params)

    @property
    def n_params(self) -> int:
        """Elements of the table."""
        return self.rows * self.dim

"""DLRMSizes: the dimensions of a recommendation model and what they imply; `spec.DLRMSpec` adds what a workload answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from ...bounds import MOST_LAYERS, MOST_WIDTH, check_bounds
from ...errors import Problem, SpecError
from ...hints import did_you_mean
from .table import EmbeddingTable
from .traffic import OPTIMIZERS

INTERACTIONS = ("dot", "cat", "dcn")


@dataclass(frozen=True)
class CrossSpec:
    """Cross network of DCNv2 with matrices of low rank: `x0 * (W_l V_l x + b) + x` in every layer (arXiv 2008.13535).

    Attributes:
        layers: cross layers.
        rank: of each layer's matrix; 0: full.
    """

    layers: int = 3
    rank: int = 512


@dataclass(frozen=True)
class DLRMSizes:
    """Sizes of a recommendation model.

    Attributes:
        name: of the model.
        n_dense: dense features of a sample; 0: none, and no bottom layers.
        bottom: widths of the layers over the dense features.
        tables: embedding tables.
        interaction: dot (products of all pairs of vectors, and the bottom's output), cat (all vectors) or dcn (all vectors
            through a cross network).
        top: widths of the layers over what the interaction gives; the last is 1 per prediction.
        dcn: of interaction dcn.
        optimizer: one of `traffic.OPTIMIZERS`; dense layers have Adagrad where it is not sgd.
        prefetch: inputs are copied to the device while the step before runs, as tuned loaders do; else in front of the step.
        source: where the sizes are published.
    """

    name: str
    n_dense: int
    bottom: tuple[int, ...]
    tables: tuple[EmbeddingTable, ...]
    top: tuple[int, ...]
    interaction: str = "dot"
    dcn: CrossSpec | None = None
    optimizer: str = "sgd"
    prefetch: bool = True
    source: str = ""

    def __post_init__(self) -> None:
        owner = f"model {self.name}"
        for problem in self._mistakes():
            raise SpecError.of(problem, owner)
        for field in ("bottom", "top"):
            check_bounds(SpecError, owner, MOST_LAYERS, **{field: len(getattr(self, field))})
            for width in getattr(self, field):
                check_bounds(SpecError, owner, MOST_WIDTH, **{field: width})

    def _mistakes(self) -> list[Problem]:
        """What contradicts itself."""
        found = []
        if not self.tables:
            found.append(Problem("tables", "is empty, but at least one embedding table is needed"))
        for name, n in Counter(table.name for table in self.tables).items():
            if n > 1:
                found.append(Problem("tables", f"{n} tables are called {name!r}. Give each a name of its own."))
        for field, known in (("interaction", INTERACTIONS), ("optimizer", tuple(OPTIMIZERS))):
            value = getattr(self, field)
            if value not in known:
                text = f"{value!r}, but it must be one of {', '.join(known)}{did_you_mean(value, known, '')}"
                found.append(Problem(field, text))
        if not self.top or min((*self.top, *self.bottom)) < 1:
            found.append(Problem("top", f"{list(self.top)}, but it must be at least one width, and no width below 1"))
        if (self.n_dense > 0) != bool(self.bottom):
            found.append(
                Problem("bottom", f"{list(self.bottom)} over {self.n_dense} dense features. Give both, or neither.")
            )
        if (self.interaction == "dcn") != (self.dcn is not None):
            found.append(Problem("dcn", "goes with interaction: dcn. Give dcn: {layers: 3, rank: 512}, or neither."))
        if self.interaction == "dot" and len({*self.bottom[-1:], *(table.dim for table in self.tables)}) > 1:
            text = "dot, but the vectors are of unlike dims. Give all tables and the last bottom layer one, or use cat."
            found.append(Problem("interaction", text))
        return found

    @property
    def pooled_width(self) -> int:
        """Elements of all pooled vectors of a sample."""
        return sum(table.dim for table in self.tables)

    @property
    def joined_width(self) -> int:
        """Elements of all vectors of a sample: pooled ones and the bottom's output."""
        return self.pooled_width + (self.bottom[-1] if self.bottom else 0)

    @property
    def n_vector(self) -> int:
        """Vectors that interact."""
        return len(self.tables) + (1 if self.bottom else 0)

    @property
    def top_width(self) -> int:
        """Elements of a sample that enter the top layers."""
        if self.interaction == "dot":
            return self.n_vector * (self.n_vector - 1) // 2 + (self.bottom[-1] if self.bottom else 0)
        return self.joined_width

    @property
    def products(self) -> tuple[tuple[str, int, int], ...]:
        """(part, inputs, outputs) of every dense layer: bottom, cross, top."""
        bottom = tuple(("bottom", k, n) for k, n in pairwise((self.n_dense, *self.bottom)))
        top = tuple(("top", k, n) for k, n in pairwise((self.top_width, *self.top)))
        return bottom + self._cross + top

    @property
    def _cross(self) -> tuple[tuple[str, int, int], ...]:
        if self.dcn is None:
            return ()
        wide, rank = self.joined_width, self.dcn.rank
        once = (("cross", wide, rank), ("cross", rank, wide)) if rank else (("cross", wide, wide),)
        return once * self.dcn.layers

    @property
    def n_table_params(self) -> int:
        """Elements of all tables."""
        return sum(table.n_params for table in self.tables)

    @property
    def n_dense_params(self) -> int:
        """Weights and biases of the dense layers; a cross layer has one bias, on its output."""
        weights = sum(k * n for _, k, n in self.products)
        biases = sum(n for part, _, n in self.products if part != "cross")
        return weights + biases + (self.dcn.layers * self.joined_width if self.dcn is not None else 0)

"""Dimensions of a recommendation model, the kernels of its dense part on one device, and how many bytes its all-to-all moves.

Layers are fused with bias and activation (HugeCTR's fused MLP, Apex); a cross layer's product with `x0` is a kernel of its own.
Devices hold unlike tables: device i sends `s_i = (B / n) sum_t D_t bytes` of pooled vectors to every other one, and receives what
all others send, `S - s_i` with S their sum; three size rules make one number of these.

Source: universal multi-GPU performance model (arXiv 2404.12674), message sizes of unequal all-to-alls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from ...core.arrays import Values, namespace
from ...core.bounds import MOST_LAYERS, MOST_WIDTH, check_bounds
from ...core.errors import Problem, SpecError
from ...core.registry import did_you_mean
from ..base.kernels import Kernel, stream
from .lookup_law import OPTIMIZERS
from .tables import EmbeddingTable

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
        """Returns the contradictions within the model."""
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
        """Number of vectors that interact."""
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
        """Number of elements of all tables."""
        return sum(table.n_params for table in self.tables)

    @property
    def n_dense_params(self) -> int:
        """Weights and biases of the dense layers; a cross layer has one bias, on its output."""
        weights = sum(k * n for _, k, n in self.products)
        biases = sum(n for part, _, n in self.products if part != "cross")
        return weights + biases + (self.dcn.layers * self.joined_width if self.dcn is not None else 0)


JOINING = 1.0 / 0.79  # bandwidth of concatenations over that of other passes (arXiv 2404.12674)


def dense_kernels(model: DLRMSizes, samples: float, wide: float) -> Iterator[Kernel]:
    """Kernels of `samples` samples with elements of `wide` bytes."""
    for part, k, n in model.products:
        yield from product_kernels(part, samples, k, n, wide)
    yield from _join(model, samples, wide)
    yield from _interaction(model, samples, wide)
    yield stream("loss", "F", samples * model.top[-1] * (2.0 * wide + 4.0))


def product_kernels(name: str, rows: float, k: float, n: float, wide: float) -> Iterator[Kernel]:
    """One layer: output, gradient of the input, gradient of the weights."""
    flops, moved = 2.0 * rows * k * n, wide * (rows * k + k * n + rows * n)
    forward = Kernel(name, "F", "gemm", flops, moved, 1.0, rows, n, k)
    yield forward
    yield forward._replace(phase="B", n=k, k=n)
    yield forward._replace(phase="W", m=k, k=rows)


def _join(model: DLRMSizes, samples: float, wide: float) -> Iterator[Kernel]:
    """Vectors that came by sender are put side by side by sample, and their gradients by receiver."""
    moved = 2.0 * wide * samples * model.joined_width * JOINING
    yield stream("concatenation", "F", moved)
    yield stream("concatenation", "B", moved)


def _interaction(model: DLRMSizes, samples: float, wide: float) -> Iterator[Kernel]:
    """Products of all pairs of vectors, or the cross layers' product with the first input."""
    if model.interaction == "dot":
        read, written = wide * samples * model.joined_width, wide * samples * model.top_width
        flops = 2.0 * samples * model.n_vector * model.joined_width
        yield Kernel("interaction", "F", "memory", flops, read + written)
        yield Kernel("interaction", "B", "memory", 2.0 * flops, 2.0 * read + written)
    if model.dcn is not None:
        one = wide * samples * model.joined_width
        layers = float(model.dcn.layers)
        # Reads x0, x and the product; backward the gradient and x0 again, and adds up theirs.
        yield stream("cross product", "F", 4.0 * one)._replace(count=layers)
        yield stream("cross product", "B", 6.0 * one)._replace(count=layers)


class SizeRule(StrEnum):
    """Bytes that decide the time of an exchange."""

    MAX_OF_MAX = "max_of_max"  # max over devices of the larger of received and sent: links carry both ways at once
    MAX_OF_SUM = "max_of_sum"  # max over devices of received plus sent
    SUM = "sum"  # everything that is sent, shared evenly


def exchange_bytes(own_bytes: Values, rule: SizeRule = SizeRule.MAX_OF_MAX) -> Values:
    """Bytes that one device sends to everybody, itself included, in an even all-to-all that takes as long, [...].

    Args:
        own_bytes: [..., device] `s_i`, bytes that the device sends to one other.

    Notes:
        Of an even exchange all three rules give `n s`: `n_bytes` of an all-to-all as `system/network.py` counts it, of which
        (n - 1) / n cross. Both directions of max-of-sum are halved for the same reason.
    """
    xp = namespace(own_bytes)
    own = xp.asarray(own_bytes, dtype=float)
    n = own.shape[-1]
    if n == 1:
        return own[..., 0]
    sent = (n - 1) * own
    received = own.sum(axis=-1, keepdims=True) - own
    match rule:
        case SizeRule.MAX_OF_MAX:
            crossing = xp.maximum(sent, received).max(axis=-1)
        case SizeRule.MAX_OF_SUM:
            crossing = 0.5 * (sent + received).max(axis=-1)
        case SizeRule.SUM:
            crossing = sent.mean(axis=-1)
    return crossing * n / (n - 1)

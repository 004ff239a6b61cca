"""Embedding tables, and the reuse of their rows: how many rows one batch reads, and which share of its lookups a cache serves.

All counts are of one batch: `rows` of the table, `n_lookups` into it, `cached_rows` that the cache has room for. A batch starts
with an empty cache: the first lookup of a row is never a hit, and with room for all rows the hit rate is `1 - unique / lookups`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, Protocol, runtime_checkable

from ...core.arrays import Floats
from ...core.bounds import MOST_COUNT, MOST_WIDTH, check_bounds
from ...core.errors import Problem, SpecError
from ...core.lazy import np

N_BINS = 17
EDGES = (0.0, *(2.0**power for power in range(16)))  # reuse counts (0, 1], (1, 2], (2, 4], ... and above 32,768
_N_BUCKET = 256  # of ranks of a Zipf table, equally wide in their logarithm
_MOST_EXPONENT = 10.0
MOST_SKIPPED = 2.0**40
_NUMBER = r"\s*([0-9]{1,12}(?:\.[0-9]{1,20})?)\s*"
_ZIPF = re.compile(rf"zipf\({_NUMBER}(?:,{_NUMBER})?\)")


class Frequent(NamedTuple):
    """The rows of a table that are read more than a number of times in a batch, and the others.

    Attributes:
        rows: of the frequent ones.
        share: of all lookups that go to them.
        own, rest: how lookups are spread over the frequent rows, and over the others.
    """

    rows: float
    share: float
    own: Reuse
    rest: Reuse


@runtime_checkable
class Reuse(Protocol):
    """Distribution of lookups over the rows of a table. Implementations are frozen dataclasses."""

    @property
    def written(self) -> str | list[float]:
        """Value in job files."""
        ...

    def unique_rows(self, rows: float, n_lookups: float) -> float:
        """Mean number of different rows that `n_lookups` read."""
        ...

    def hit_rate(self, rows: float, n_lookups: float, cached_rows: float) -> float:
        """Share of the lookups whose row a least-recently-used cache still holds."""
        ...

    def frequent(self, rows: float, n_lookups: float, least: float) -> Frequent:
        """The rows that are read more than `least` times in the mean."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Every row is as likely as any other.

    Source: universal multi-GPU performance model (arXiv 2404.12674), L2 model of the embedding lookup.
    """

    @property
    def written(self) -> str:
        """Value in job files."""
        return "uniform"

    def unique_rows(self, rows: float, n_lookups: float) -> float:
        """`E (1 - (1 - 1/E)^N)`."""
        return -rows * float(np.expm1(n_lookups * np.log1p(-1.0 / rows))) if rows > 1 else min(1.0, n_lookups)

    def hit_rate(self, rows: float, n_lookups: float, cached_rows: float) -> float:
        """`1 - U/N` where all unique rows fit, else `1 - (X + (N - X)(E - X)/E) / N`."""
        if n_lookups <= 0.0:
            return 0.0
        unique = self.unique_rows(rows, n_lookups)
        if unique <= cached_rows:
            return max(1.0 - unique / n_lookups, 0.0)
        missed = cached_rows + (n_lookups - cached_rows) * (rows - cached_rows) / rows
        return min(max(1.0 - missed / n_lookups, 0.0), 1.0)

    def frequent(self, rows: float, n_lookups: float, least: float) -> Frequent:
        """Returns all rows or none, by whether each is looked up more than `least` times."""
        is_frequent = n_lookups / rows > least
        return Frequent(rows * is_frequent, float(is_frequent), self, self)


@dataclass(frozen=True)
class Zipf:
    """The row of rank i is read with a probability proportional to `(i + q)^-a`: Zipf's law, with q the law of Mandelbrot.

    Attributes:
        a: exponent.
        q: ranks before the first, as where the most frequent rows are elsewhere.

    Notes:
        Che's approximation: a row is cached while its last lookup is among the latest t, with t from `sum(1 - e^(-p t)) = X`. The
        batch starts cold: until t lookups are done every new row misses.
    """

    a: float
    q: float = 0.0

    def __post_init__(self) -> None:
        for name, most in (("a", _MOST_EXPONENT), ("q", MOST_SKIPPED)):
            if not 0.0 <= (value := getattr(self, name)) <= most:
                raise SpecError.of(Problem(name, f"{value}, but it must be between 0 and {most:g}"), "zipf")

    @property
    def written(self) -> str:
        """Value in job files."""
        return f"zipf({self.a!r}, {self.q!r})" if self.q else f"zipf({self.a!r})"

    def unique_rows(self, rows: float, n_lookups: float) -> float:
        """`sum(1 - e^(-p N))`."""
        count, prob = _zipf_buckets(self.a, self.q, rows)
        return float((count * -np.expm1(-prob * n_lookups)).sum())

    def hit_rate(self, rows: float, n_lookups: float, cached_rows: float) -> float:
        """Mean over the batch: `(t - X + (N - t) h) / N` with h the hit rate once the cache is full."""
        count, prob = _zipf_buckets(self.a, self.q, rows)

        def distinct(t: float) -> float:
            return float((count * -np.expm1(-prob * t)).sum())

        if n_lookups <= 0.0:
            return 0.0
        t = _window(distinct, n_lookups, cached_rows)
        full = float((count * prob * -np.expm1(-prob * t)).sum())
        return min(max((t - distinct(t) + (n_lookups - t) * full) / n_lookups, 0.0), 1.0)

    def frequent(self, rows: float, n_lookups: float, least: float) -> Frequent:
        """The ranks before the first that is not read that often; the others follow the law from there on."""
        count, prob = _zipf_buckets(self.a, self.q, rows)
        n = int(np.count_nonzero(n_lookups * prob > least))
        first = float(count[:n].sum())
        share = float((count * prob)[:n].sum())
        return Frequent(first, min(share, 1.0), self, replace(self, q=self.q + first))


@dataclass(frozen=True)
class Histogram:
    """Lookups by how often their row is read in the batch.

    Attributes:
        lookup_shares: [17] shares of all lookups whose row is read 1, 2, 3-4, 5-8, ... 16,385-32,768 times, and more often.

    Notes:
        A row that is read c times has its gaps spread as those of c points on the batch: a lookup comes within a share w of the
        batch after the one before with `1 - (1 - w)^c`. The shares hold for any batch.
    """

    lookup_shares: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.lookup_shares) != N_BINS or min(self.lookup_shares) < 0.0 or sum(self.lookup_shares) <= 0.0:
            text = f"{len(self.lookup_shares)} shares, but {N_BINS} are needed, none below 0 and not all 0"
            raise SpecError.of(Problem("lookup_shares", text), "histogram")

    @property
    def written(self) -> list[float]:
        """Value in job files."""
        return list(self.lookup_shares)

    @property
    def shares(self) -> Floats:
        """Probability of each reuse-distance bin, [bin]."""
        own = np.array(self.lookup_shares, dtype=float)
        return own / own.sum()

    def unique_rows(self, rows: float, n_lookups: float) -> float:
        """Lookups over how often each bin's rows are read, at most all rows."""
        return min(n_lookups * float((self.shares / bin_reuse()).sum()), rows)

    def hit_rate(self, rows: float, n_lookups: float, cached_rows: float) -> float:
        """`sum(s (1 - 1/c) (1 - (1 - w)^c))` with w the window in which as many rows are read as the cache holds."""
        if n_lookups <= 0.0:
            return 0.0
        reuse, shares = bin_reuse(), self.shares

        def distinct(window: float) -> float:
            return float((n_lookups * shares / reuse * (1.0 - (1.0 - window) ** reuse)).sum())

        window = _window(distinct, 1.0, cached_rows)
        hits = float((shares * (1.0 - 1.0 / reuse) * (1.0 - (1.0 - window) ** reuse)).sum())
        return min(max(hits, 0.0), max(1.0 - self.unique_rows(rows, n_lookups) / n_lookups, 0.0))

    def frequent(self, rows: float, n_lookups: float, least: float) -> Frequent:
        """Returns the bins whose rows are read more often."""
        often = bin_reuse() > least
        share = float(self.shares[often].sum())
        if share in (0.0, 1.0):
            return Frequent(share * rows, share, self, self)
        own, rest = (Histogram(tuple((self.shares * kept).tolist())) for kept in (often, ~often))
        return Frequent(min(own.unique_rows(rows, share * n_lookups), rows), share, own, rest)


def bin_reuse() -> Floats:
    """Reads of a row of each bin, [bin]: mean over a density of rows that falls with the square of the count.

    Notes:
        Of a bin from a to b that mean, over rows, is `ln(b/a) / (1/a - 1/b)`; for doubling bins 1.39 a. Counts are integers:
        the first bins hold 1, 2 and 3 or 4. The last bin is open and gets 1.39 times its lower edge.
    """
    first, lower = np.array([1.0, 2.0, 24.0 / 7.0]), np.array(EDGES[3:])
    return np.concatenate([first, lower * 2.0 * np.log(2.0)])


def parse_reuse(written: object) -> Reuse:
    """Reuse as job files write it: `uniform`, `zipf(1.05)`, or 17 shares of the lookups.

    Raises:
        SpecError: neither.
    """
    if isinstance(written, Reuse):
        return written
    if isinstance(written, str) and written.strip() == "uniform":
        return Uniform()
    if isinstance(written, str) and (found := _ZIPF.fullmatch(written.strip())):
        return Zipf(float(found[1]), float(found[2] or 0.0))
    if isinstance(written, (list, tuple)) and all(type(share) in (int, float) for share in written):
        return Histogram(tuple(float(share) for share in written))
    raise SpecError.of(
        Problem("reuse", f"must be uniform, zipf(a), zipf(a, q) or a list of {N_BINS} shares of lookups")
    )


@lru_cache(maxsize=512)
def _zipf_buckets(a: float, q: float, rows: float) -> tuple[Floats, Floats]:
    """Ranks in buckets: rows of each, and the probability of one of them."""
    n = max(int(rows), 1)
    edges = np.unique(np.round(np.geomspace(1.0, n + 1.0, min(_N_BUCKET, n) + 1)))
    low, high = edges[:-1] - 0.5 + q, edges[1:] - 0.5 + q
    mass = np.log(high / low) if a == 1.0 else (high ** (1.0 - a) - low ** (1.0 - a)) / (1.0 - a)
    count = high - low
    return count, mass / mass.sum() / count


def _window(distinct: Callable[[float], float], longest: float, cached_rows: float) -> float:
    """The window in which `distinct` rows, which grow with it, are as many as fit; at most `longest`."""
    if distinct(longest) <= cached_rows:
        return longest
    low, high = 0.0, longest
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if distinct(middle) < cached_rows else (low, middle)
    return 0.5 * (low + high)


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
        """Number of elements of the table."""
        return self.rows * self.dim

"""Data: facts known of the samples of a batch: lengths of documents, and how they become the sequences of a micro-batch.

Where several documents share a sequence, a token sees those of its own document alone (attention over cumulative lengths, such as
FlashAttention's `varlen` kernels). Products see all tokens; attention sees, per token of a packed sequence,

    sum over documents of l * keys(l)  /  sum of l         keys(l): of a query in a sequence of l tokens, (l + 1) / 2 if causal

so that its FLOPs go with the sum of squared lengths. By default all micro-batches hold the same mixture of documents; with a
packing rule every micro-batch has documents of its own, and its work is drawn (`micro_batch_work.py`).

Source: Megatron-Bridge PR 3839 (FLOPs of packed sequences by their squared lengths); Krell et al., arXiv 2107.02027.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from ..core.arrays import Floats, Positions
from ..core.bounds import MOST_SAMPLES, MOST_TOKENS
from ..core.errors import PlanError
from ..core.lazy import np
from .fields import PlanField

MOST_LENGTHS = 20_000  # documents of a list, or unlike lengths of counts
N_BIN = 256  # unlike lengths that stand for those of a file
TAKES = (
    "tokens of every document: [512, 3000, 580], 4096 where all have that, how many of every length: {512: 120, 4096: 3}, a "
    "family: {kind: log_normal, cv: 1.2, mean: 700}, or a column of a table: corpus.parquet:n_tokens"
)
MIXTURE = "mixture"
PACKINGS = {
    MIXTURE: "every micro-batch holds the same mixture of documents, packed with a mask; nothing varies",
    "padded": "a document per sequence, padded to the longest of its micro-batch",
    "packed": "documents in a row, cut into full sequences without a mask: attention sees all of a sequence",
    "masked": "documents in a row, cut into full sequences; attention sees its own document",
    "bucketed": "padded, of micro-batches that are cut from sorted pools of documents",
    "balanced": "masked, sequences dealt over replicas and micro-batches so that the squares of lengths are even",
}


@dataclass(frozen=True)
class Lengths:
    """Lengths of documents: (tokens, how many of them), by tokens. Empty: every sequence is one document.

    Attributes:
        counts: the lengths.
        family: fields, by name, of the family that was written, if one was.
    """

    counts: tuple[tuple[int, int], ...] = ()
    family: tuple[tuple[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.counts)

    @property
    def written(self) -> dict[Any, Any]:
        """Value in a job file."""
        return dict(self.family or self.counts)

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return sum(count for _, count in self.counts)

    @property
    def n_tokens(self) -> int:
        """Tokens of all of them."""
        return sum(length * count for length, count in self.counts)

    @property
    def longest(self) -> int:
        """Tokens of the longest one."""
        return max((length for length, _ in self.counts), default=0)

    def mean_over_tokens(self, of: Callable[[int], float]) -> float:
        """Mean of `of(length of its document)` over all tokens."""
        return sum(length * count * of(length) for length, count in self.counts) / self.n_tokens

    def arrays(self, longest: int) -> tuple[Positions, Floats]:
        """Unlike lengths [length], cut off at `longest`, increasing, and the share of documents that each has."""
        tokens, count = np.array(self.counts, dtype=np.int64).T
        unlike, which = np.unique(np.minimum(tokens, longest), return_inverse=True)
        return unlike, np.bincount(which, count) / count.sum()


def binned(tokens: Positions, weight: Floats, n_bin: int = N_BIN) -> Lengths:
    """Replaces many lengths [length] by few, with the same sums of tokens and, but for rounding, of their squares."""
    tokens, weight = tokens[weight > 0.0], weight[weight > 0.0]
    edges = np.unique(np.geomspace(1, int(tokens.max()) + 1, n_bin + 1).astype(np.int64))
    of = np.searchsorted(edges, tokens, side="right")
    total, square = (np.bincount(of, weight * tokens.astype(float) ** power) for power in (1, 2))
    length = np.rint(square[total > 0.0] / total[total > 0.0])
    count = np.rint(total[total > 0.0] / length * (1e12 / total.sum()))
    return Lengths(tuple(zip(length.astype(int).tolist(), np.maximum(count, 1.0).astype(int).tolist(), strict=True)))


def parse_lengths(written: object) -> Lengths:
    """The lengths of a job file.

    Raises:
        PlanError: neither a list nor counts of whole numbers above 0, or too many of them.
    """
    if isinstance(written, Lengths):
        return written
    pairs = _pairs(written)
    if not pairs or len(pairs) > MOST_LENGTHS:
        found = f"{len(pairs)} lengths, but there must be 1 to {MOST_LENGTHS:,}"
        raise PlanError(
            f"{found}. Write {TAKES}." if pairs is not None and len(pairs) > MOST_LENGTHS else f"must be {TAKES}"
        )
    counts: Counter[int] = Counter()
    for length, count in pairs:
        if not (1 <= length <= MOST_TOKENS and 1 <= count <= MOST_SAMPLES):
            raise PlanError(f"has {count} of {length} tokens, but both must be at least 1 and at most {MOST_TOKENS:,}")
        counts[length] += count
    return Lengths(tuple(sorted(counts.items())))


def _pairs(written: object) -> list[tuple[int, int]]:
    """(tokens, count) as written; empty where it is of neither form."""
    if isinstance(written, Mapping):
        pairs: list[tuple[Any, Any]] = [(_number(length), count) for length, count in written.items()]
    elif isinstance(written, list | tuple):
        pairs = [(length, 1) for length in written]
    elif type(written) is int:
        pairs = [(written, 1)]
    else:
        return []
    is_whole = all(type(length) is int and type(count) is int for length, count in pairs)
    return pairs if is_whole else []


def _number(key: object) -> object:
    """A length that is a key: TOML writes keys as texts."""
    return int(key) if isinstance(key, str) and key.isdecimal() and len(key) < 20 else key


@dataclass(frozen=True)
class Data:
    """Facts known of the samples.

    Attributes:
        lengths: of the documents that become sequences of at most `plan.seq_len` tokens.
        packing: how they do; a key of `PACKINGS`.
        bucket: micro-batches of a pool that is sorted, for bucketed.
    """

    lengths: Annotated[
        Lengths,
        PlanField(
            "lengths of the documents packed into a sequence; by default it is one", read=parse_lengths, takes=TAKES
        ),
    ] = field(default_factory=Lengths)
    packing: Annotated[
        str, PlanField("how documents become sequences; all but mixture draw every micro-batch", known=tuple(PACKINGS))
    ] = MIXTURE
    # Source: transformers, `LengthGroupedSampler` (group_by_length): pools of 50 batches.
    bucket: Annotated[int, PlanField("micro-batches of a sorted pool of documents, for bucketed")] = 50

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", parse_lengths(self.lengths))

    @property
    def is_drawn(self) -> bool:
        """Whether micro-batches hold documents of their own."""
        return bool(self.lengths) and self.packing != MIXTURE

"""Data: what is known of the samples of a batch; today the lengths of the documents that are packed into its sequences.

Several documents share a sequence, and a token sees those of its own document alone (attention over cumulative lengths, such as
FlashAttention's `varlen` kernels). Products see all tokens; attention sees, per token of a packed sequence,

    sum over documents of l * keys(l)  /  sum of l         keys(l): of a query in a sequence of l tokens, (l + 1) / 2 if causal

so that its FLOPs go with the sum of squared lengths. The lengths are a sample of the documents: sequences are taken to be full,
and all micro-batches to hold the same mixture; that some hold longer documents than others is in no prediction.

Source: Megatron-Bridge PR 3839 (FLOPs of packed sequences by their squared lengths); Krell et al., arXiv 2107.02027.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from ..core.bounds import MOST_SAMPLES, MOST_TOKENS
from ..core.errors import PlanError
from .fields import PlanField

MOST_LENGTHS = 20_000  # documents of a list, or unlike lengths of counts
TAKES = "tokens of every document: [512, 3000, 580], 4096 where all have that, or how many of every length: {512: 120, 4096: 3}"


@dataclass(frozen=True)
class Lengths:
    """Lengths of documents: (tokens, how many of them), by tokens. Empty: every sequence is one document."""

    counts: tuple[tuple[int, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.counts)

    @property
    def written(self) -> dict[int, int]:
        """As a job file has it."""
        return dict(self.counts)

    @property
    def n_documents(self) -> int:
        """How many there are."""
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
    """What is known of the samples.

    Attributes:
        lengths: of the documents that are packed into sequences of `plan.seq_len` tokens.
    """

    lengths: Annotated[
        Lengths,
        PlanField("of the documents packed into a sequence; by default it is one", read=parse_lengths, takes=TAKES),
    ] = field(default_factory=Lengths)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", parse_lengths(self.lengths))


class HasLengths(Protocol):
    """Fields of a plan; see `ParallelPlan`."""

    @property
    def seq_len(self) -> int: ...
    @property
    def data(self) -> Data: ...


def mean_over_lengths(plan: HasLengths, of: Callable[[int], float]) -> float:
    """Mean over all tokens of `of(length of the sequence or packed document that a token is in)`."""
    return plan.data.lengths.mean_over_tokens(of) if plan.data.lengths else of(plan.seq_len)

"""Data: lengths of documents, how they become the sequences of a micro-batch, and the work of that: laws by packing rule.

Where several documents share a sequence, a token sees those of its own document alone (attention over cumulative lengths, such
as FlashAttention's `varlen` kernels). Products see all tokens; attention sees, per token of a packed sequence,

    sum over documents of l * keys(l)  /  sum of l         keys(l): of a query in a sequence of l tokens, (l + 1) / 2 if causal

so that its FLOPs go with the sum of squared lengths. By default all micro-batches hold the same mixture of documents. With a
packing rule every micro-batch has documents of its own, independent draws from the lengths of a corpus; S tokens are a full
sequence, b sequences a micro-batch, F the share of documents that have at most so many tokens.

- padded: a micro-batch lasts as b sequences of its longest document M, P(M <= l) = F(l)^b.
- bucketed: a pool of k micro-batches is sorted and cut, and the pieces are shuffled: M of the j-th piece is the order statistic
  j b of k b documents, P(M <= l) = mean over j of I(F(l); j b, k b - j b + 1) with the incomplete beta function.
- packed: every sequence is full, and attention sees all of it: nothing varies.
- masked: documents stand in a row that is cut every S tokens; tokens do not vary, attention goes with the squares of the pieces.
  A document of l <= S tokens is cut once with probability (l - 1) / S, everywhere alike: the mean is a sum over lengths. How
  squares scatter between micro-batches is a table of a long row, simulated once.
- balanced: sequences of a step, made as masked ones, are sorted by their squares and dealt in turns, back and forth, over
  replicas, and what a replica gets in the same way over its micro-batches. Replicas depend on each other: the table holds whole
  steps.

A law is a table of equally likely micro-batches, from the least work to the most, so that a uniform number gives tokens and
squares together, and the heaviest of k micro-batches stands at the quantile u^(1/k).

Source: Megatron-Bridge PR 3839 (FLOPs of packed sequences by their squared lengths); Krell et al., arXiv 2107.02027.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, Protocol

from ..core.arrays import Floats, Positions
from ..core.bounds import MOST_SAMPLES, MOST_TOKENS
from ..core.errors import PlanError
from ..core.lazy import np, special
from .fields import PlanField, PlanFields

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


N_ROW = 1 << 16  # equally likely micro-batches
N_DRAWN = 1 << 20  # equally likely documents that a row is made of
MOST_DOCUMENTS = 1 << 21  # of a simulated row, and of the steps that are balanced
LEAST_STEPS, MOST_STEPS = 16, 2048


class HasData(PlanFields, Protocol):
    """A plan, by which micro-batches are made of documents."""

    @property
    def data(self) -> Data: ...


@dataclass(frozen=True, eq=False)
class MicroBatchLaw:
    """Distribution of the work of micro-batches.

    Attributes:
        seq_len: tokens that are computed per sequence, in the mean.
        lengths: of what attention sees, in the mean; empty: of whole sequences of `seq_len`.
        real: of the pieces of documents in sequences, without padding.
        real_tokens: of a sequence, in the mean.
        tokens, squares: [row] of a micro-batch over their means, less one; of whole steps [step, replica, micro_batch]. No rows
            where nothing varies.
    """

    seq_len: int
    lengths: Lengths
    real: Lengths
    real_tokens: float
    tokens: Floats
    squares: Floats

    @property
    def varies(self) -> bool:
        """Whether micro-batches differ."""
        return self.squares.size > 0


def law_of(plan: HasData) -> MicroBatchLaw:
    """The law of a plan whose data are drawn."""
    data = plan.data
    own = data if data.packing == "bucketed" else replace(data, bucket=1)
    step = (plan.dp, plan.n_micro_batch) if data.packing == "balanced" else (1, 1)
    return _law(own, plan.seq_len, plan.micro_batch, step)


@lru_cache(maxsize=64)
def _law(data: Data, seq_len: int, micro_batch: int, step: tuple[int, int]) -> MicroBatchLaw:
    length, share = data.lengths.arrays(seq_len)
    if data.packing in ("padded", "bucketed"):
        below = np.minimum(np.cumsum(share), 1.0)
        own = _bucketed(below, micro_batch, data.bucket) if data.packing == "bucketed" else below**micro_batch
        own[-1] = 1.0
        chance, longest = np.diff(own, prepend=0.0), length[np.searchsorted(own, (np.arange(N_ROW) + 0.5) / N_ROW)]
        real = binned(length, share)
        return _made(binned(length, chance), real, float(share @ length), longest, longest.astype(float) ** 2)
    tokens, weight = data.lengths.arrays(np.iinfo(np.int64).max)
    pieces = _pieces(tokens, weight, seq_len)
    none = np.zeros(0)
    if data.packing == "packed":
        return MicroBatchLaw(seq_len, Lengths(), Lengths(), float(seq_len), none, none)
    n_step = step[0] * step[1] * micro_batch  # sequences
    mean = float(weight @ tokens)
    if data.packing == "balanced":
        fits = int(MOST_DOCUMENTS // max(1.0, n_step * max(seq_len / mean, 1.0)))
        rows = int(np.clip(fits, LEAST_STEPS, MOST_STEPS))
        squares = _dealt(_squares_in_row(tokens, weight, seq_len, rows * n_step).reshape(rows, -1), step, micro_batch)
    else:
        n = int(np.clip(MOST_DOCUMENTS / max(micro_batch * seq_len / mean, 1.0), 1 << 13, N_ROW))
        squares = _squares_in_row(tokens, weight, seq_len, n * micro_batch).reshape(n, -1).sum(axis=1)
        squares = np.sort(squares)[(np.arange(N_ROW) * n) // N_ROW]
    return _made(pieces, pieces, float(seq_len), np.full(squares.shape, seq_len), squares)


def _made(seen: Lengths, real: Lengths, real_tokens: float, tokens: Positions, squares: Floats) -> MicroBatchLaw:
    rel = tokens / tokens.mean() - 1.0, squares / squares.mean() - 1.0
    return MicroBatchLaw(max(1, round(float(tokens.mean()))), seen, real, real_tokens, *rel)


def _bucketed(below: Floats, b: int, k: int) -> Floats:
    """Chance that the longest of a micro-batch has at most so many tokens, [length]."""
    rank = b * np.arange(1, k + 1)[:, None]
    return np.asarray(special.betainc(rank, k * b - rank + 1, below)).mean(axis=0)


def _pieces(tokens: Positions, share: Floats, seq_len: int) -> Lengths:
    """Pieces of documents that are cut every `seq_len` tokens, at a random phase."""
    whole, rest = np.divmod(tokens, seq_len)  # the first piece has 1 to S tokens, each as often
    short, per = whole == 0, share / seq_len
    rise = np.zeros(seq_len + 2)  # of the weights of pieces from one length to the next
    np.add.at(rise, np.ones_like(rest), 2.0 * per * (rest > 0))
    np.add.at(rise, rest, -2.0 * per * (rest > 0))
    np.add.at(rise, rest + 1, 2.0 * per * ~short)
    rise[seq_len] -= 2.0 * per[~short].sum()
    weight = np.cumsum(rise)[: seq_len + 1]
    np.add.at(weight, rest, np.where(short, per * (seq_len - rest + 1), 2.0 * per))
    weight[seq_len] += (per * (whole * (rest + 1) + (whole - 1) * (seq_len - rest - 1)))[~short].sum()
    return binned(np.arange(1, seq_len + 1), np.maximum(weight[1:], 0.0))


def _squares_in_row(tokens: Positions, share: Floats, seq_len: int, n: int) -> Floats:
    """Sums of the squared lengths of pieces of `n` sequences that a long row of documents is cut into, [sequence]."""
    rng, mean = np.random.default_rng(0), float(share @ tokens)
    at = np.searchsorted(np.cumsum(share), (np.arange(N_DRAWN) + 0.5) / N_DRAWN)
    document = tokens[np.minimum(at, len(tokens) - 1)]
    found, carried, left = [], np.zeros(0, np.int64), n + 1  # the first begins with a document, and is left out
    while left > 0:
        some = min(left, max(1, int(MOST_DOCUMENTS // 8 * mean / seq_len)))
        ends = [carried]
        while sum(map(np.sum, ends)) < some * seq_len:
            count = int(some * seq_len / mean * 1.05) + 64
            ends.append(document[rng.integers(N_DRAWN, size=count, dtype=np.uint32)])
        end = np.cumsum(np.concatenate(ends))
        inside = end[: np.searchsorted(end, some * seq_len, side="right")]
        carried = end[len(inside) : len(inside) + 1] - some * seq_len  # what is left of the document that is cut last
        edge = np.sort(np.concatenate([inside, np.arange(1, some + 1) * seq_len]), kind="stable")  # merges two runs
        piece = np.diff(edge, prepend=0).astype(float)
        found.append(np.bincount((edge - 1) // seq_len, piece**2, some))
        left -= some
    return np.concatenate(found)[1 : n + 1]


def _dealt(squares: Floats, step: tuple[int, int], micro_batch: int) -> Floats:
    """Sums of squares of steps whose sequences [step, sequence] are dealt out, [step, replica, micro_batch]."""
    n_replica, n_micro_batch = step
    for_replicas = _in_turns(np.sort(squares, axis=1)[:, ::-1], n_replica)
    return (
        _in_turns(for_replicas, n_micro_batch).reshape(len(squares), n_replica, n_micro_batch, micro_batch).sum(axis=-1)
    )


def _in_turns(cards: Floats, n: int) -> Floats:
    """Deals cards [..., card], highest to lowest, to `n` players back and forth: [..., player, card]."""
    rounds = cards.reshape(*cards.shape[:-1], -1, n).copy()
    rounds[..., 1::2, :] = rounds[..., 1::2, ::-1]
    return np.swapaxes(rounds, -1, -2)


def mean_over_lengths(plan: HasData, of: Callable[[int], float]) -> float:
    """Mean over all tokens of `of(length of the sequence or document that a token is in)`."""
    if plan.data.is_drawn:
        lengths = law_of(plan).real
        return lengths.mean_over_tokens(of) if lengths else of(plan.seq_len)
    return plan.data.lengths.mean_over_tokens(of) if plan.data.lengths else of(plan.seq_len)

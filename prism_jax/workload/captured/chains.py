"""Chains: which operations of a program one kernel can do, and how many bytes that kernel moves, by who reads what.

An operation joins the one that reads its result, if nothing else in the same pass reads it: pointwise operations, reductions and
copies do. What it writes for that reader alone stays in registers. A reduction that writes as much as it reads (norm, softmax)
takes one tensor, and what goes on behind it no further one: a cast joins it, the sum with a residual is a kernel of its own. Four
more rules, each of which hand-written kernels follow:

- a value that takes no more bytes to make again than to read (a cast, an activation, a cosine) is made again by whoever reads it,
  the backward pass included, and never written; a product makes small operands, such as the part of a bias;
- a copy that only lays out anew what one kernel wrote for it alone is not made: that kernel writes to the right place;
- a gradient of weights that is added to a sum is added by the kernel that makes it: a product (gradient accumulation fusion of
  Megatron-LM, beta = 1 of cuBLAS), or the backward pass of a norm;
- a sum over what a product of weight gradients reads, the gradient of a bias, is an epilogue of that product
  (`CUBLASLT_EPILOGUE_BGRADB`, as in Transformer Engine and Apex).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

POINTWISE, ONCE, REDUCTION, COPY, LOOKUP, SCATTER, SUM, KERNEL, OTHER = (
    "pointwise", "once", "reduction", "copy", "lookup", "scatter", "sum", "kernel", ""
)  # fmt: skip
FEEDS = (POINTWISE, ONCE, REDUCTION, COPY, LOOKUP, SUM)  # what a kernel may begin with
TAKES = (POINTWISE, ONCE, REDUCTION, COPY, SCATTER, SUM)  # what a kernel may go on with
WRITES_ANYWHERE = (KERNEL, POINTWISE, ONCE, REDUCTION, LOOKUP, SUM)
# Share of what an operation writes up to which a result counts as a by-product: statistics, gradients of weights of norms.
MINOR = 1 / 16
# Bounds of programs that nobody wrote: values that one is made again of, and readers beyond which none joins.
_MOST_SOURCES, _MOST_READERS = 64, 64


Value = tuple[Hashable, frozenset[int]]  # memory, and who made what is in it


class Access(NamedTuple):
    """One value that an operation reads.

    Attributes:
        makers: numbers of the operations that made it; none: it is from outside.
        storage: name of the memory that it lies in.
        start, stop: bytes of that memory between which it lies.
        n_bytes: number of bytes read.
    """

    makers: frozenset[int]
    storage: Hashable
    start: int
    stop: int
    n_bytes: float

    @property
    def maker(self) -> int | None:
        """Number of the one operation that made the value; None: several did, or none."""
        return next(iter(self.makers)) if len(self.makers) == 1 else None


@dataclass(frozen=True)
class ChainStep:
    """One operation.

    Attributes:
        role: part that it may have in a kernel, one of the words above; `sum`: adds in place; `kernel`: products, attention,
            tables; `once`: pointwise, but random or in place, so that it cannot be made again.
        phase: F, B, W or opt.
        reads: its inputs.
        written_bytes: of all its results.
        readers: numbers of the operations that read a result of it, all larger than its own, by-products aside.
        loop: number of the loop that it runs in; a kernel begins and ends in one.
    """

    role: str
    phase: str
    reads: tuple[Access, ...] = ()
    written_bytes: float = 0.0
    readers: tuple[int, ...] = ()
    loop: int = 0


class Link(NamedTuple):
    """The kernel that an operation is part of.

    Attributes:
        end: number of the operation in whose place the kernel runs; its own where it is the last or alone.
        n_bytes: moved by the kernel, at its last operation; None: as many as the operation moves by itself.
    """

    end: int
    n_bytes: float | None


def links(steps: Sequence[ChainStep]) -> list[Link]:
    """The kernel that every operation is part of, [step]."""
    return _Chains(steps).links()


class _Chains:
    """Chains of a program, found from its end."""

    def __init__(self, steps: Sequence[ChainStep]) -> None:
        self.steps = steps
        self.n_reads = Counter(_value(access) for step in steps for access in step.reads)
        self.is_of_one: list[bool] = []  # [step] it reads no more than it writes
        self.again: list[bool] = []  # [step] it is made again by who reads it
        self.sources: list[tuple[Access, ...]] = []  # [step] what has to be read to make it again
        self._find_again()
        self.readers = self._effective_readers()
        self.summed: dict[int, frozenset[Hashable]] = {}  # end of a chain that only sums -> what it sums over
        self.end = self._ends()

    def links(self) -> list[Link]:
        members: dict[int, list[int]] = {}
        for number, end in enumerate(self.end):
            members.setdefault(end, []).append(number)
        made = {end: self._bytes(end, frozenset(own)) for end, own in members.items()}
        return [Link(end, made[end] if number == end else None) for number, end in enumerate(self.end)]

    def _find_again(self) -> None:
        for step in self.steps:
            sources = tuple(dict.fromkeys(self._expanded(step.reads)))
            read_by_kernels = bool(step.readers) and all(self._makes(one, step.written_bytes) for one in step.readers)
            is_of_one = len(sources) <= _MOST_SOURCES and _distinct_bytes(sources) <= (1.0 + MINOR) * step.written_bytes
            self.is_of_one.append(is_of_one)
            self.again.append(
                step.role in (POINTWISE, LOOKUP) and step.phase != "opt" and read_by_kernels and is_of_one
            )
            self.sources.append(sources)

    def _makes(self, reader: int, n_bytes: float) -> bool:
        """Whether an operation could make what it reads, of that size, as it reads it."""
        step = self.steps[reader]
        is_small = n_bytes <= MINOR * sum(one.n_bytes for one in step.reads)
        return step.role in TAKES or (step.role == KERNEL and is_small)

    def _expanded(self, reads: Sequence[Access]) -> Iterator[Access]:
        """Yields the values that have to be read: a value that is made again is replaced by the values it is made of."""
        for access in reads:
            if access.maker is not None and self.again[access.maker]:
                yield from _part(self.sources[access.maker], access, self.steps[access.maker].written_bytes or 1.0)
            else:
                yield access

    def _effective_readers(self) -> list[frozenset[int]]:
        """Readers [step] of every result, through values that are made again."""
        found: list[frozenset[int]] = [frozenset()] * len(self.steps)
        for number in range(len(self.steps) - 1, -1, -1):
            readers: set[int] = set()
            for reader in self.steps[number].readers:
                readers |= found[reader] if self.again[reader] else {reader}
                if len(readers) > _MOST_READERS:
                    break
            found[number] = frozenset(readers)
        return found

    def _ends(self) -> list[int]:
        ends = list(range(len(self.steps)))
        for number in range(len(self.steps) - 1, -1, -1):
            step, readers = self.steps[number], self._in_pass(number)
            found = {ends[one] for one in readers}
            if len(found) != 1 or step.phase == "opt":
                continue
            (end,) = found
            is_chain = step.role in FEEDS and all(self._goes_on(number, one) for one in readers)
            is_beside = (self.steps[end].phase, self.steps[end].loop) == (step.phase, step.loop)
            if is_beside and (self._is_accumulated(number) or (is_chain and not self._is_apart(number, end))):
                ends[number] = end
        return ends

    def _goes_on(self, number: int, reader: int) -> bool:
        """Whether the kernel of an operation may do the one that reads its result, too."""
        step, other = self.steps[number], self.steps[reader]
        if other.role not in TAKES:
            return False
        if _is_norm(other) and not self.is_of_one[number]:
            return False
        more = (one.n_bytes for one in self._expanded(other.reads) if one.maker != number)
        return not _is_norm(step) or max(more, default=0.0) <= MINOR * step.written_bytes

    def _is_apart(self, number: int, end: int) -> bool:
        """A sum over much of which little is left, where the kernel only goes on with the sum over something else."""
        step = self.steps[number]
        whole = sum(one.n_bytes for one in step.reads)
        if step.role != REDUCTION or max(step.written_bytes, self.steps[end].written_bytes) > MINOR * whole:
            return False
        own = frozenset(one.storage for one in self._expanded(step.reads) if one.n_bytes > MINOR * whole)
        return bool(own) and not own & self.summed.setdefault(end, own)

    def _in_pass(self, number: int) -> list[int]:
        """Returns the operations that read a result in the same pass."""
        is_forward = self.steps[number].phase == "F"
        return [one for one in self.readers[number] if (self.steps[one].phase == "F") == is_forward]

    def _is_accumulated(self, number: int) -> bool:
        """A product of weight gradients whose result is only added to a sum."""
        step, readers = self.steps[number], self.readers[number]
        return step.role == KERNEL and step.phase == "W" and [self.steps[one].role for one in readers] == [SUM]

    def _bytes(self, end: int, members: frozenset[int]) -> float | None:
        """Bytes of the kernel of a chain; None: it is one operation that nothing changes."""
        if self.again[end]:
            return 0.0
        reads: list[Access] = []
        written = saved = added_to = 0.0
        for number in sorted(members):
            step = self.steps[number]
            if self.again[number]:
                continue
            spared = [access for access in step.reads if self._is_spared(number, access)]
            saved += sum(access.n_bytes for access in spared)
            written -= sum(access.n_bytes for access in spared) if step.role == COPY else 0.0
            rest = self._expanded([access for access in step.reads if access not in spared])
            outer = [access for access in rest if access.maker is None or access.maker not in members]
            reads += outer
            added_to += len(outer) if step.role == SUM and step.phase == "W" else 0
            written += step.written_bytes if number == end else self._kept_bytes(number, members)
        if saved and len(reads) == added_to and not any(self.steps[number].role == KERNEL for number in members):
            return 0.0  # by-products of other kernels, which write or add them where they belong
        total = _distinct_bytes(reads) + max(written, 0.0)
        plain = self.steps[end]
        alone = sum(one.n_bytes for one in plain.reads) + plain.written_bytes
        return None if len(members) == 1 and not saved and abs(total - alone) <= 1e-9 * alone else total

    def _kept_bytes(self, number: int, members: frozenset[int]) -> float:
        """Bytes that an operation inside a chain writes for readers outside it, such as a mask of dropout."""
        sizes: dict[Hashable, float] = {}
        for reader in self.readers[number] - members:
            for access in self._expanded(self.steps[reader].reads):
                if number in access.makers:
                    sizes[access.storage] = max(sizes.get(access.storage, 0.0), access.n_bytes)
        return min(sum(sizes.values()), self.steps[number].written_bytes)

    def _is_spared(self, number: int, access: Access) -> bool:
        """Whether a copy or a sum over weight gradients needs no reading of its own."""
        step, end = self.steps[number], self.end[number]
        is_moved = step.role == COPY or (step.role == SUM and step.phase == "W")
        if is_moved and access.maker is not None and self.end[access.maker] != end:
            maker, is_again = self.steps[access.maker], self.again[access.maker]
            is_alone = self.readers[access.maker] == {number} or self.n_reads[_value(access)] == 1
            return maker.role in WRITES_ANYWHERE and not is_again and is_alone
        return step.role == REDUCTION and step.phase == "W" and _value(access) in self._weighed

    @cached_property
    def _weighed(self) -> frozenset[Value]:
        """Values that products of weight gradients read."""
        return frozenset(
            _value(access) for step in self.steps if step.role == KERNEL and step.phase == "W" for access in step.reads
        )


def _is_norm(step: ChainStep) -> bool:
    """A reduction that writes as much as it reads."""
    return step.role == REDUCTION and step.written_bytes > MINOR * sum(one.n_bytes for one in step.reads)


def _value(access: Access) -> Value:
    """Key of the value that is read, the same for each of its parts."""
    return access.storage, access.makers


def _part(sources: Sequence[Access], access: Access, whole: float) -> Iterator[Access]:
    """Yields the reads that make the accessed part of a value, which is `whole` bytes long."""
    share = min(access.n_bytes / whole, 1.0)
    first, last = min(access.start / whole, 1.0), min(access.stop / whole, 1.0)
    for one in sources:
        long = one.stop - one.start
        where = (
            {"start": one.start + round(first * long), "stop": one.start + round(last * long)} if share < 1.0 else {}
        )
        yield one._replace(n_bytes=share * one.n_bytes, **where)


def _distinct_bytes(reads: Sequence[Access]) -> float:
    """Bytes of all reads; a read that lies inside another one counts once."""
    kept: dict[Value, list[Access]] = {}
    for access in sorted(reads, key=lambda one: -one.n_bytes):
        same = kept.setdefault(_value(access), [])
        if not any(one.start <= access.start and access.stop <= one.stop for one in same):
            same.append(access)
    return sum(one.n_bytes for same in kept.values() for one in same)

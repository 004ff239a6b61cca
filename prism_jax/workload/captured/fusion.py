"""Fusion policies: which pointwise operations and reductions of a capture run as one kernel, and which traffic that saves.

Rows are those of a program that runs one operation after another.

- eager: none is merged; every operation is a kernel.
- fused: the chains that the rows name (`CapturedOp.chain`) are one kernel each, see `chains`: what hand-written kernels do (Apex,
  Transformer Engine, Liger), by who reads what.
- inductor: every chain of neighbours between two products: pointwise operations and reductions (torch.compile).
- megatron: the chains of neighbours that Megatron-LM has kernels for: bias with activation, bias with dropout and sum, scale with
  mask and softmax, gate with product, rotary embedding.
- xla: every chain of neighbours, which a reduction ends (XLA's loop and input fusions).

Neighbours have one phase, stream and run. What an operation writes for the next one alone stays in registers: it is not read
again, and where nothing keeps it for the backward pass it is not written either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from .program import OWN_KERNELS, CapturedOp, CapturedRow, RankClass, RankProgram, Repeat


def joined(one: RankClass) -> RankClass:
    """The class with every chain in the place of its last row; waits and repeats follow.

    Notes:
        Of a chain that leaves its repeat every row stays as it is.
    """
    ends = chain_ends(one)
    members: dict[int, list[int]] = {}
    for index, end in enumerate(ends):
        members.setdefault(end, []).append(index)
    kept = [index for index, end in enumerate(ends) if index == end]
    rows: list[CapturedRow] = []
    for index in kept:
        row = one.rows[index]
        chain = [own for at in members[index] if isinstance(own := one.rows[at], CapturedOp)]
        rows.append(_kernel(chain) if isinstance(row, CapturedOp) else row)
    place = [bisect_left(kept, index) for index in range(len(ends) + 1)]  # of the row, or the first one kept behind it
    return _placed(one, rows, [*(place[end] for end in ends), len(kept)], place)


def _placed(one: RankClass, rows: Iterable[CapturedRow], wait: Sequence[int], place: Sequence[int]) -> RankClass:
    """The class with other rows.

    Args:
        wait: [old row, and one past the last] the row that a collective waits for in its place.
        place: [old row, and one past the last] new row of the edges of repeats.
    """
    moved = (
        row if isinstance(row, CapturedOp) or row.wait is None else replace(row, wait=wait[row.wait]) for row in rows
    )
    repeats = (Repeat(place[each.start], place[each.stop], each.times) for each in one.repeats)
    return replace(one, rows=tuple(moved), repeats=tuple(each for each in repeats if each.start < each.stop))


def chain_ends(one: RankClass) -> list[int]:
    """Row in whose place the kernel of each row runs, [row]: its own where it is not in a chain."""
    edges = sorted({edge for repeat in one.repeats for edge in (repeat.start, repeat.stop)})
    ends = [index + (row.chain if isinstance(row, CapturedOp) else 0) for index, row in enumerate(one.rows)]
    torn = {end for index, end in enumerate(ends) if bisect_left(edges, index + 1) != bisect_left(edges, end + 1)}
    return [index if end in torn else end for index, end in enumerate(ends)]


def in_chains(one: RankClass) -> list[bool] | None:
    """Whether each row is one of several that one kernel could do, [row]; None: the rows name no chains."""
    if not any(isinstance(row, CapturedOp) and (row.chain or row.chain_bytes is not None) for row in one.rows):
        return None
    found = [False] * len(one.rows)
    for index, end in enumerate(chain_ends(one)):
        if end != index:
            found[index] = found[end] = True
    return found


def _kernel(chain: Sequence[CapturedOp]) -> CapturedOp:
    """One kernel that does the work of a chain."""
    last = chain[-1]
    n_bytes = last.n_bytes if last.chain_bytes is None else last.chain_bytes
    if not n_bytes and not any(op.flops for op in chain):
        return replace(last, kind="none", n_bytes=0.0, output_bytes=0.0, chain_bytes=None, seconds=None)
    base = next((op for op in chain if op.kind in OWN_KERNELS), last)  # which the chain begins or ends with
    written = min(last.output_bytes, n_bytes)
    return replace(_summed(base, chain, n_bytes), output_bytes=written, chain=0, chain_bytes=None)


def _summed(base: CapturedOp, chain: Sequence[CapturedOp], n_bytes: float) -> CapturedOp:
    """The operation `base` as the kernel of a chain, with the names, FLOPs and seconds of all."""
    name = "+".join(dict.fromkeys(op.name for op in chain))[:200]
    flops, seconds = sum(op.flops for op in chain), summed(op.seconds for op in chain)
    return replace(base, name=name, flops=flops, n_bytes=n_bytes, seconds=seconds, fusible=False)


def summed(seconds: Iterable[float | None]) -> float | None:
    """Returns the sum of all times; None where one was not measured."""
    total = 0.0
    for one in seconds:
        if one is None:
            return None
        total += one
    return total


_REDUCTIONS = ("softmax", "norm", "sum", "mean", "reduce", "max", "amax", "argmax", "var")
_MEGATRON = (  # words of the names of operations that one kernel of Megatron-LM holds
    ("add", "gelu"),
    ("add", "dropout"),
    ("dropout", "add"),
    ("scale", "mask", "masked", "softmax", "mul", "div"),
    ("silu", "mul"),
    ("rope", "rotary", "cos", "sin", "neg", "cat"),
)


def fused(one: RankClass, policy: str) -> RankClass:
    """The class with merged rows; waits and repeats point to the same places."""
    if policy == "fused":
        return joined(one)
    joins = NEIGHBOURS[policy]
    edges = {edge for repeat in one.repeats for edge in (repeat.start, repeat.stop)}
    edges |= {row.wait for row in one.rows if not isinstance(row, CapturedOp) and row.wait is not None}
    rows: list[CapturedRow] = []
    place: list[int] = []  # [old row] where it went
    chain: list[CapturedOp] = []
    for index, row in enumerate(one.rows):
        is_alike = bool(chain) and index not in edges and _may_join(chain[-1], row) and joins(chain, row)
        if chain and not is_alike:
            rows[-1], chain = merged(chain), []
        if is_alike and isinstance(row, CapturedOp):
            chain.append(row)
        else:
            rows.append(row)
            chain = [row] if isinstance(row, CapturedOp) and row.fusible else []
        place.append(len(rows) - 1)
    if chain:
        rows[-1] = merged(chain)
    place.append(len(rows))
    return _placed(one, rows, place, place)


def merged(chain: Sequence[CapturedOp]) -> CapturedOp:
    """One kernel that does the work of a chain."""
    if len(chain) == 1:
        return chain[0]
    saved = 0.0
    for op, after in pairwise(chain):
        written = min(op.output_bytes or 0.5 * op.n_bytes, op.n_bytes, after.n_bytes)
        saved += written if op.phase == "F" else 2.0 * written
    total, last = sum(op.n_bytes for op in chain), chain[-1]
    least = last.output_bytes or 0.5 * last.n_bytes
    return _summed(last, chain, max(total - saved, least))


def _may_join(op: CapturedOp, row: CapturedRow) -> bool:
    if not isinstance(row, CapturedOp) or not row.fusible:
        return False
    return (op.phase, op.stream, op.count) == (row.phase, row.stream, row.count)


def _known_to_megatron(chain: Sequence[CapturedOp], row: CapturedRow) -> bool:
    names = [op.name.lower() for op in chain] + [getattr(row, "name", "").lower()]
    return any(all(any(word in name for word in words) for name in names) for words in _MEGATRON)


NEIGHBOURS: Mapping[str, Callable[[Sequence[CapturedOp], CapturedRow], bool]] = {
    "eager": lambda chain, row: False,
    "inductor": lambda chain, row: True,
    "megatron": _known_to_megatron,
    "xla": lambda chain, row: not any(word in chain[-1].name.lower() for word in _REDUCTIONS),
}


_ABOUT = {
    "eager": "every operation is a kernel of its own",
    "fused": "chains of operations of which each reads what the one before made for it alone are a kernel each",
    "inductor": "pointwise operations between products are merged, as torch.compile does",
    "megatron": "the chains that Megatron-LM has kernels for are merged",
    "xla": "pointwise operations up to the next reduction are merged, as XLA does",
}


def capture_notes(program: RankProgram) -> Iterator[str]:
    """Notes on source, fusion, and assumptions where the code does not state a fact."""
    versions = ", ".join(f"{name} {version}" for name, version in program.versions.items())
    of = " of ".join(part for part in (versions or program.source, f"{program.world:,} ranks") if part)
    yield f"captured from {of}: {len(program.classes)} classes, {program.n_rows:,} rows"
    before, after = program.n_rows, sum(len(fused(one, program.fusion).rows) for one in program.classes)
    merged = f", {before:,} rows become {after:,}" if after != before else ""
    yield f"fusion = {program.fusion}: {_ABOUT[program.fusion]}{merged}"
    for sentence in program.assumptions:
        yield f"assumed: {sentence}"

"""Fusion policies: which pointwise operations and reductions of a capture run as one kernel, and which traffic that saves.

Rows are those of a program that runs one operation after another.

- eager: none is merged; every operation is a kernel.
- fused: the chains that the rows name are one kernel each, see `chains`: what hand-written kernels do (Apex, Transformer Engine,
  Liger), by who reads what.

Three policies merge neighbours of one phase, stream and run:

- inductor: every chain of pointwise operations and reductions between two products (torch.compile).
- megatron: the chains that Megatron-LM has kernels for: bias with activation, bias with dropout and sum, scale with mask and
  softmax, gate with product, rotary embedding.
- xla: every chain, which a reduction ends (XLA's loop and input fusions).

What an operation of such a chain writes for the next one alone stays in registers: it is not read again, and where nothing keeps
it for the backward pass it is not written either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from .named_chains import joined, named, summed
from .program import RankClass, Repeat
from .rows import CapturedComm, CapturedOp, CapturedRow

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
    kept = tuple(row if isinstance(row, CapturedOp) else _moved(row, place) for row in rows)
    repeats = tuple(Repeat(place[each.start], place[each.stop], each.times) for each in one.repeats)
    return replace(one, rows=kept, repeats=repeats)


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
    return replace(
        last,
        name=named(chain),
        flops=sum(op.flops for op in chain),
        n_bytes=max(total - saved, least),
        seconds=summed(op.seconds for op in chain),
        shape=last.shape,
        fusible=False,
    )


def _may_join(op: CapturedOp, row: CapturedRow) -> bool:
    if not isinstance(row, CapturedOp) or not row.fusible:
        return False
    return (op.phase, op.stream, op.count) == (row.phase, row.stream, row.count)


def _moved(row: CapturedComm, place: Sequence[int]) -> CapturedComm:
    return row if row.wait is None else replace(row, wait=place[row.wait])


def _apart(chain: Sequence[CapturedOp], row: CapturedRow) -> bool:
    return False


def _always(chain: Sequence[CapturedOp], row: CapturedRow) -> bool:
    return True


def _until_reduction(chain: Sequence[CapturedOp], row: CapturedRow) -> bool:
    return not any(word in chain[-1].name.lower() for word in _REDUCTIONS)


def _known_to_megatron(chain: Sequence[CapturedOp], row: CapturedRow) -> bool:
    names = [op.name.lower() for op in chain] + [getattr(row, "name", "").lower()]
    return any(all(any(word in name for word in words) for name in names) for words in _MEGATRON)


NEIGHBOURS: Mapping[str, Callable[[Sequence[CapturedOp], CapturedRow], bool]] = {
    "eager": _apart,
    "inductor": _always,
    "megatron": _known_to_megatron,
    "xla": _until_reduction,
}

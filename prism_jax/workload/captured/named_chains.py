"""The chains that rows name (`CapturedOp.chain`), each as the one kernel that does it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace

from .program import RankClass, Repeat
from .rows import OWN_KERNELS, CapturedOp, CapturedRow


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
        if isinstance(row, CapturedOp):
            rows.append(_kernel([own for at in members[index] if isinstance(own := one.rows[at], CapturedOp)]))
        else:
            wait = row.wait
            is_end = wait is not None and wait < len(ends)
            rows.append(replace(row, wait=_place(kept, ends[wait] if is_end else wait)) if wait is not None else row)
    repeats = tuple(Repeat(_place(kept, each.start), _place(kept, each.stop), each.times) for each in one.repeats)
    return replace(one, rows=tuple(rows), repeats=tuple(each for each in repeats if each.start < each.stop))


def chain_ends(one: RankClass) -> list[int]:
    """[row] the row in whose place its kernel runs: its own where it is none of a chain."""
    edges = sorted({edge for repeat in one.repeats for edge in (repeat.start, repeat.stop)})
    ends = [index + (row.chain if isinstance(row, CapturedOp) else 0) for index, row in enumerate(one.rows)]
    torn = {end for index, end in enumerate(ends) if bisect_left(edges, index + 1) != bisect_left(edges, end + 1)}
    return [index if end in torn else end for index, end in enumerate(ends)]


def in_chains(one: RankClass) -> list[bool] | None:
    """[row] whether it is one of several that one kernel could do; None: the rows name no chains."""
    if not any(isinstance(row, CapturedOp) and (row.chain or row.chain_bytes is not None) for row in one.rows):
        return None
    found = [False] * len(one.rows)
    for index, end in enumerate(chain_ends(one)):
        if end != index:
            found[index] = found[end] = True
    return found


def _place(kept: Sequence[int], index: int) -> int:
    """Where a row, or the first one behind it, went."""
    return bisect_left(kept, index)


def _kernel(chain: Sequence[CapturedOp]) -> CapturedOp:
    """One kernel that does the work of a chain."""
    last = chain[-1]
    n_bytes = last.n_bytes if last.chain_bytes is None else last.chain_bytes
    if not n_bytes and not any(op.flops for op in chain):
        return replace(last, kind="none", n_bytes=0.0, output_bytes=0.0, chain_bytes=None, seconds=None)
    base = next((op for op in chain if op.kind in OWN_KERNELS), last)  # which the chain begins or ends with
    return replace(
        base,
        name=named(chain),
        flops=sum(op.flops for op in chain),
        n_bytes=n_bytes,
        output_bytes=min(last.output_bytes, n_bytes),
        seconds=summed(op.seconds for op in chain),
        fusible=False,
        chain=0,
        chain_bytes=None,
    )


def named(chain: Sequence[CapturedOp]) -> str:
    """Name of the kernel of a chain: those of its operations."""
    return "+".join(dict.fromkeys(op.name for op in chain))[:200]


def summed(seconds: Iterable[float | None]) -> float | None:
    """Of all; None where one was not measured."""
    total = 0.0
    for one in seconds:
        if one is None:
            return None
        total += one
    return total

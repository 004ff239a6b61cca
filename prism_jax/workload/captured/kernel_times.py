"""Measured seconds of kernels for a captured program: those of the same operator on tensors of the same shapes.

A product is found by its sizes, whatever it is called and whichever side is m and which n; an operator that moves memory by its
name and by a tensor of its shape, else by the bytes that it reads, else, where the profile shows no sizes (lists of tensors), by
its name. What is not found keeps the kernel model.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from .program import CapturedOp, CapturedRow, RankProgram

PRODUCTS = ("gemm", "conv")
NEAR = 0.01  # relative difference of the bytes read up to which an operator that moves memory is the same
SHOWN = 6  # operators without times that are named
_FLOPS_PER_S, _BYTES_PER_S = 1e14, 1e12  # for shares where no operator of the kind was measured
Shape = tuple[int, ...]


@dataclass(frozen=True)
class TimedOp:
    """An operator that was measured on its own GPU, inside a step.

    Attributes:
        name: aten::mm.
        kind, dtype: as those of `CapturedOp`.
        sizes: of a product or of attention, as the shape of `CapturedOp`; empty for others.
        shapes: of its tensors.
        read_bytes: of all its inputs.
        seconds: of its kernels, those of operators that it calls included.
    """

    name: str
    kind: str
    dtype: str
    sizes: Shape
    shapes: tuple[Shape, ...]
    read_bytes: float
    seconds: float


@dataclass(frozen=True)
class KernelTimes:
    """Measured operators with their seconds.

    Attributes:
        source: file.
        device: on which they ran.
        ops: one entry for each time that an operator ran.
    """

    source: str
    device: str
    ops: tuple[TimedOp, ...]

    def seconds(self, op: CapturedOp) -> float | None:
        """Returns the time of one operator: the median of the measured ones that equal it; None where there is none."""
        for key in _keys(
            op.name, op.kind, op.dtype, op.shape if op.kind in (*PRODUCTS, "attention") else (), (op.shape,)
        ):
            if found := self._by_key.get(key):
                return median(found)
        return self._by_bytes(op) if op.kind not in (*PRODUCTS, "attention", "none") else None

    @cached_property
    def _by_key(self) -> dict[tuple[object, ...], list[float]]:
        found: defaultdict[tuple[object, ...], list[float]] = defaultdict(list)
        for op in self.ops:
            for key in _keys(op.name, op.kind, op.dtype, op.sizes, op.shapes):
                found[key].append(op.seconds)
        return dict(found)

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], list[TimedOp]]:
        found: defaultdict[tuple[str, str], list[TimedOp]] = defaultdict(list)
        for op in self.ops:
            found[_own(op.name), _format(op.dtype)].append(op)
        return dict(found)

    def _by_bytes(self, op: CapturedOp) -> float | None:
        read = op.n_bytes - op.output_bytes
        same = self._by_name.get((_own(op.name), _format(op.dtype)), ())
        found = [one.seconds for one in same if abs(one.read_bytes - read) <= NEAR * max(read, 1.0)]
        found = found or [one.seconds for one in same if not one.shapes]
        return median(found) if found else None


@dataclass(frozen=True)
class TimedProgram:
    """A program with measured seconds.

    Attributes:
        program: its rows have them where they were found, and its assumptions say which have none.
        covered: share of the kernel time of a micro-batch that has them; what has none is counted at the rates of the rest.
        missing: name of an operator without times -> its share, the largest first.
    """

    program: RankProgram
    covered: float
    missing: dict[str, float]


def with_times(program: RankProgram, times: KernelTimes) -> TimedProgram:
    """The program with the seconds of `times` for its operators; seconds that it has already stay where there are no others."""
    found: dict[CapturedRow, float | None] = {op: times.seconds(op) for one in program.classes for op, _ in one.ops}
    classes = tuple(
        replace(one, rows=tuple(_timed(row, found.get(row)) for row in one.rows)) for one in program.classes
    )
    total, missing = _shares(pair for one in classes for pair in one.ops if pair[0].phase != "opt")
    share = {name: seconds / total for name, seconds in missing.most_common()} if total else {}
    covered = 1.0 - sum(share.values())
    where = f"{times.device or 'a GPU'} ({times.source})"
    note = f"kernel seconds measured on {where} stand for {covered:.1%} of the kernel time, on any device"
    if share:
        words = ", ".join(f"{name} {part:.2%}" for name, part in list(share.items())[:SHOWN])
        more = f" and {len(share) - SHOWN} more" if len(share) > SHOWN else ""
        note += f"; without: {words}{more}"
    timed = replace(program, classes=classes, assumptions=(*program.assumptions, note))
    return TimedProgram(timed, covered, share)


def _timed(row: CapturedRow, seconds: float | None) -> CapturedRow:
    return row if seconds is None or not isinstance(row, CapturedOp) else replace(row, seconds=seconds)


def _keys(name: str, kind: str, dtype: str, sizes: Shape, shapes: Iterable[Shape]) -> Iterator[tuple[object, ...]]:
    """Yields the keys by which an operator is looked up, the closest match first."""
    form = _format(dtype)
    if kind in PRODUCTS:
        if sizes:
            batch, m, n, k = sizes
            same = (form, kind, batch, min(m, n), max(m, n), k)
            yield (_own(name), *same)
            yield same
    elif kind == "attention":
        if sizes:
            yield ("attention", "backward" in name, form, *sizes)
    elif kind != "none":
        for shape in dict.fromkeys(shapes):
            yield (_own(name), form, shape)


def _own(name: str) -> str:
    """Returns the name without namespace and overload: mm of aten::mm.out."""
    return name.rpartition("::")[2].partition(".")[0]


def _format(dtype: str) -> str:
    """Products of fp32 run as TF32 or not, as the profile did."""
    return "fp32" if dtype == "tf32" else dtype


def _shares(ops: Iterable[tuple[CapturedOp, int]]) -> tuple[float, Counter[str]]:
    """Seconds of all operators, and of those without times by name, at the rates of those with."""
    rows = [(op, n) for op, n in ops if op.kind != "none"]
    known = [(op, n) for op, n in rows if op.seconds is not None]
    flops_per_s = _rate([(op.flops, op.seconds, n) for op, n in known if op.flops], _FLOPS_PER_S)
    bytes_per_s = _rate([(op.n_bytes, op.seconds, n) for op, n in known if not op.flops], _BYTES_PER_S)
    total, missing = 0.0, Counter[str]()
    for op, n in rows:
        seconds = op.seconds
        if seconds is None:
            seconds = op.flops / flops_per_s if op.flops else op.n_bytes / bytes_per_s
            missing[op.name] += seconds * n  # pyright: ignore[reportArgumentType]
        total += seconds * n
    return total, missing


def _rate(rows: list[tuple[float, float | None, int]], default: float) -> float:
    done, seconds = sum(amount * n for amount, _, n in rows), sum((one or 0.0) * n for _, one, n in rows)
    return done / seconds if done > 0.0 and seconds > 0.0 else default

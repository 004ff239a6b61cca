"""How often a loop runs: what XLA wrote beside it, or its counter, where that starts, steps and ends at constants."""

from __future__ import annotations

import re

from .text.types import Computation, Instruction, Module

MOST_TRIPS = 2**31
_KNOWN = re.compile(r'"known_trip_count":\s*\{\s*"n":\s*"?(-?\d{1,18})"?')
_MOST_STEPS = 64  # instructions between a use of a constant and its definition
_THROUGH = ("copy", "bitcast", "convert", "reshape")


def trip_count(module: Module, computation: Computation, loop: Instruction) -> int | None:
    """Trips of a `while` instruction; None where neither the text nor its counter tells.

    Raises:
        DataError: a number that cannot be.
    """
    if found := _KNOWN.search(loop.attributes.get("backend_config", "")):
        return _checked(module, loop, int(found[1]))
    condition, body = module.called(loop, "condition"), module.called(loop, "body")
    if condition is None or body is None:
        raise module.refused(loop.line, f"the loop {loop.name[:60]} has no condition or no body")
    counted = _counter(module, condition)
    if counted is None:
        return None
    index, direction, end = counted
    start, step = _start(module, computation, loop, index), _step(module, body, index)
    if start is None or not step:
        return None
    last = end + 1 if direction == "LE" else end
    return _checked(module, loop, max(0, -(-(last - start) // step)) if step > 0 else 0)


def _checked(module: Module, loop: Instruction, n: int) -> int:
    if not 0 <= n <= MOST_TRIPS:
        raise module.refused(
            loop.line, f"the loop {loop.name[:60]} runs {n:,} times, but it must be 0 to {MOST_TRIPS:,}"
        )
    return n


def _counter(module: Module, condition: Computation) -> tuple[int, str, int] | None:
    """Index in the loop's tuple, direction and end of `counter < end`."""
    root = condition.instructions[condition.root]
    inner = condition
    operands = root.operands
    if root.opcode in ("fusion", "call"):  # compare alone, wrapped
        called = module.called(root, "calls", "to_apply")
        if called is None:
            return None
        inner, root = called, called.instructions[called.root]
    if root.opcode != "compare" or root.attributes.get("direction") not in ("LT", "LE") or len(root.operands) != 2:
        return None
    left, right = (_outside(inner, condition, name, operands) for name in root.operands)
    if left is None or right is None:
        return None
    end = _constant(*right)
    at = left[1]
    if end is None or at.opcode != "get-tuple-element":
        return None
    return at.number, root.attributes["direction"], end


def _outside(
    inner: Computation, outer: Computation, name: str, operands: tuple[str, ...]
) -> tuple[Computation, Instruction] | None:
    """A value of a wrapped computation, seen from where it was handed in."""
    at = _behind(inner, inner.instructions[name])
    if inner is not outer and at.opcode == "parameter":
        position = at.number
        if position >= len(operands):
            return None
        return outer, _behind(outer, outer.instructions[operands[position]])
    return inner, at


def _behind(computation: Computation, at: Instruction) -> Instruction:
    """What a value is before copies and conversions."""
    for _ in range(_MOST_STEPS):
        if at.opcode not in _THROUGH or not at.operands:
            return at
        at = computation.instructions[at.operands[0]]
    return at


def _constant(computation: Computation, at: Instruction) -> int | None:
    at = _behind(computation, at)
    text = at.literal.strip("{} ")
    return int(text) if at.opcode == "constant" and re.fullmatch(r"-?\d{1,18}", text) else None


def _start(module: Module, computation: Computation, loop: Instruction, index: int) -> int | None:
    given = _behind(computation, module.operand(computation, loop, 0))
    if given.opcode != "tuple" or index >= len(given.operands):
        return None
    return _constant(computation, computation.instructions[given.operands[index]])


def _step(module: Module, body: Computation, index: int) -> int | None:
    """What a trip adds to the counter."""
    root = body.instructions[body.root]
    if root.opcode != "tuple" or index >= len(root.operands):
        return None
    at, inner = _behind(body, body.instructions[root.operands[index]]), body
    outer = at.operands
    if at.opcode in ("fusion", "call"):
        called = module.called(at, "calls", "to_apply")
        if called is None:
            return None
        inner, at = called, called.instructions[called.root]
    if at.opcode != "add":
        return None
    for name in at.operands:
        value = _outside(inner, body, name, outer)
        if value is not None and (step := _constant(*value)) is not None:
            return step
    return None

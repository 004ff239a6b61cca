"""Walks the instructions of a module as a device runs them: loops with their trips, calls, the slowest branch of conditionals.

How often a loop runs is what XLA wrote next to it, or follows from its counter: where that starts, steps and ends at constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .products import phase_of, product_of
from .types import Computation, Instruction, Module, callees, callees_first

MOST_TRIPS = 2**31
_KNOWN = re.compile(r'"known_trip_count":\s*\{\s*"n":\s*"?(-?\d{1,18})"?')
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
    operands = condition.instructions[condition.root].operands
    inner, root = _unwrapped(module, condition, condition.instructions[condition.root])
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


def _unwrapped(module: Module, computation: Computation, at: Instruction) -> tuple[Computation, Instruction]:
    """The instruction itself, or the one instruction of a fusion or call that holds no other."""
    called = module.called(at, "calls", "to_apply") if at.opcode in ("fusion", "call") else None
    return (computation, at) if called is None else (called, called.instructions[called.root])


def _outside(
    inner: Computation, outer: Computation, name: str, operands: tuple[str, ...]
) -> tuple[Computation, Instruction] | None:
    """A value of a wrapped computation, seen from where it was handed in."""
    at = inner.behind(inner.instructions[name], _THROUGH)
    if inner is not outer and at.opcode == "parameter":
        position = at.number
        if position >= len(operands):
            return None
        return outer, outer.behind(outer.instructions[operands[position]], _THROUGH)
    return inner, at


def _constant(computation: Computation, at: Instruction) -> int | None:
    at = computation.behind(at, _THROUGH)
    text = at.literal.strip("{} ")
    return int(text) if at.opcode == "constant" and re.fullmatch(r"-?\d{1,18}", text) else None


def _start(module: Module, computation: Computation, loop: Instruction, index: int) -> int | None:
    given = computation.behind(module.operand(computation, loop, 0), _THROUGH)
    if given.opcode != "tuple" or index >= len(given.operands):
        return None
    return _constant(computation, computation.instructions[given.operands[index]])


def _step(module: Module, body: Computation, index: int) -> int | None:
    """Returns the number that a trip adds to the counter."""
    root = body.instructions[body.root]
    if root.opcode != "tuple" or index >= len(root.operands):
        return None
    added = body.behind(body.instructions[root.operands[index]], _THROUGH)
    outer = added.operands
    inner, at = _unwrapped(module, body, added)
    if at.opcode != "add":
        return None
    for name in at.operands:
        value = _outside(inner, body, name, outer)
        if value is not None and (step := _constant(*value)) is not None:
            return step
    return None


MOST_VISITED = 2_000_000
MOST_TIMES = 2**31
ENTERED = ("while", "call", "conditional", "async-start")


@dataclass(frozen=True, slots=True)
class Visit:
    """One instruction that runs.

    Attributes:
        times: how often, by the trips of all loops around it.
        loop: number of the innermost loop that it is in; 0 for none.
        phase: F, B or opt.
        started: computation and name of the `async-start` that it runs in; None for none.
    """

    computation: Computation
    instruction: Instruction
    times: int
    loop: int
    phase: str
    started: tuple[str, str] | None = None


@dataclass
class ModuleWalk:
    """A walk through a module; its notes are complete when `visits` has ended.

    Attributes:
        nested: loops that hold other loops.
        untold: loops whose trips nobody knows, which are counted once.
        branches: conditionals of which one branch was taken.
    """

    module: Module
    nested: set[int] = field(default_factory=set)
    untold: list[str] = field(default_factory=list)
    branches: int = 0
    _n_loops: int = 0

    def visits(self) -> Iterator[Visit]:
        """Every instruction that runs, in order.

        Raises:
            DataError: more than can be walked through, or a loop that runs more often than can be.
        """
        weights = _weights(self.module)
        entry = self.module.computations[self.module.entry]
        stack = [_Frame(entry, 1, 0, "F")]
        while stack:
            frame = stack[-1]
            instruction = next(frame.rest, None)
            if instruction is None:
                stack.pop()
                continue
            phase = phase_of(self.module, instruction, frame.phases, frame.parent)
            frame.phases[instruction.name] = phase
            if instruction.opcode not in ENTERED:
                yield Visit(frame.computation, instruction, frame.times, frame.loop, phase, frame.started)
                continue
            stack += self._entered(frame, instruction, phase, weights)

    def _entered(self, frame: _Frame, instruction: Instruction, phase: str, weights: dict[str, float]) -> list[_Frame]:
        """Returns the frames that run inside an instruction."""
        module = self.module
        if instruction.opcode == "while":
            return self._loop(frame, instruction, phase)
        if instruction.opcode == "conditional":
            self.branches += 1
            name = max(callees(instruction), key=weights.__getitem__, default="")
            called = module.computations.get(name)
        else:
            called = module.called(instruction, "to_apply", "calls")
        is_start = instruction.opcode == "async-start"
        started = (frame.computation.name, instruction.name) if is_start else frame.started
        return [] if called is None else [_Frame(called, frame.times, frame.loop, phase, started)]

    def _loop(self, frame: _Frame, instruction: Instruction, phase: str) -> list[_Frame]:
        trips = trip_count(self.module, frame.computation, instruction)
        if trips is None:
            self.untold.append(instruction.name)
            trips = 1
        times = frame.times * trips
        if times > MOST_TIMES:
            text = f"the loop {instruction.name[:60]} runs {times:,} times in all, but at most {MOST_TIMES:,} are read"
            raise self.module.refused(instruction.line, text)
        body = self.module.called(instruction, "body")
        if body is None or trips == 0:
            return []
        self._n_loops += 1
        if frame.loop:
            self.nested.add(frame.loop)
        return [_Frame(body, times, self._n_loops, phase)]


@dataclass
class _Frame:
    """A computation that is being walked through."""

    computation: Computation
    times: int
    loop: int
    parent: str
    started: tuple[str, str] | None = None
    phases: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rest = iter(self.computation.instructions.values())


def _weights(module: Module) -> dict[str, float]:
    """FLOPs of products of every computation, with those of the computations it calls (loops once).

    Raises:
        DataError: a walk would visit too many instructions: calls that fan out.
    """
    flops: dict[str, float] = {}
    visited: dict[str, int] = {}
    for name in callees_first(module):
        computation = module.computations[name]
        flops[name], visited[name] = 0.0, len(computation.instructions)
        for instruction in computation.instructions.values():
            is_product = instruction.opcode in ("dot", "convolution")
            product = product_of(module, computation, instruction) if is_product else None
            flops[name] += product.flops if product else 0.0
            for called in callees(instruction):
                flops[name] += flops[called]
                visited[name] += visited[called] if instruction.opcode in ENTERED else 0
        if visited[name] > MOST_VISITED:
            text = f"the computation {name[:60]} runs more than {MOST_VISITED:,} instructions, with all that it calls"
            raise module.refused(computation.line, text)
    return flops

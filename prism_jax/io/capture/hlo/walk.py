"""The instructions of a module as a device runs them: loops with their trips, calls, the dearest branch of conditionals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .passes import phase_of
from .products import product_of
from .text.calls import callees, callees_first
from .text.types import Computation, Instruction, Module
from .trips import trip_count

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
class Walk:
    """A walk through a module; what it notes is complete when `visits` has ended.

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
        stack = [_frame(entry, 1, 0, "F")]
        while stack:
            frame = stack[-1]
            instruction = next(frame.rest, None)
            if instruction is None:
                stack.pop()
                continue
            phase = phase_of(self.module, frame.computation, instruction, frame.phases, frame.parent)
            frame.phases[instruction.name] = phase
            if instruction.opcode not in ENTERED:
                yield Visit(frame.computation, instruction, frame.times, frame.loop, phase, frame.started)
                continue
            stack += self._entered(frame, instruction, phase, weights)

    def _entered(self, frame: _Frame, instruction: Instruction, phase: str, weights: dict[str, float]) -> list[_Frame]:
        """What runs inside an instruction."""
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
        return [] if called is None else [_frame(called, frame.times, frame.loop, phase, started)]

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
        return [_frame(body, times, self._n_loops, phase)]


@dataclass
class _Frame:
    """A computation that is being walked through."""

    computation: Computation
    rest: Iterator[Instruction]
    times: int
    loop: int
    parent: str
    started: tuple[str, str] | None = None
    phases: dict[str, str] = field(default_factory=dict)


def _frame(
    computation: Computation, times: int, loop: int, parent: str, started: tuple[str, str] | None = None
) -> _Frame:
    return _Frame(computation, iter(computation.instructions.values()), times, loop, parent, started)


def _weights(module: Module) -> dict[str, float]:
    """FLOPs of products of every computation, with what it calls (loops once).

    Raises:
        DataError: a walk would visit too many instructions: calls that fan out.
    """
    flops: dict[str, float] = {}
    visited: dict[str, int] = {}
    for name in callees_first(module):
        computation = module.computations[name]
        flops[name], visited[name] = 0.0, len(computation.instructions)
        for instruction in computation.instructions.values():
            shapes = tuple(
                computation.instructions[one].shapes[0]
                for one in instruction.operands
                if computation.instructions[one].shapes
            )
            product = product_of(module, instruction, shapes) if instruction.opcode in ("dot", "convolution") else None
            flops[name] += product.flops if product else 0.0
            for called in callees(instruction):
                flops[name] += flops[called]
                visited[name] += visited[called] if instruction.opcode in ENTERED else 0
        if visited[name] > MOST_VISITED:
            text = f"the computation {name[:60]} runs more than {MOST_VISITED:,} instructions, with all that it calls"
            raise module.refused(computation.line, text)
    return flops

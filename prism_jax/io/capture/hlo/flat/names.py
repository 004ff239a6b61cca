"""Which value a name stands for: through tuples, loops and calls, as far as they hand it on as it is."""

from __future__ import annotations

from ..moves import Place, own_shape
from ..text.types import Computation, Instruction, Module
from .roles import VIEWS
from .values import Value, outside

_MOST_STEPS = 256


class Names:
    """Values by the names of the instructions that the walk visits.

    Attributes:
        through_loops: whether a loop hands on what was made before it, and what it writes to slices.
    """

    def __init__(self, module: Module, *, through_loops: bool) -> None:
        self._module = module
        self.through_loops = through_loops
        self._made: dict[tuple[str, str], tuple[Value, ...]] = {}
        self._callers: dict[str, list[Place]] = {}
        for computation in module.computations.values():
            for one in computation.instructions.values():
                if one.opcode in ("while", "call") and (called := module.called(one, "body", "to_apply")) is not None:
                    self._callers.setdefault(called.name, []).append((computation, one))

    def keep(self, computation: Computation, instruction: Instruction, values: tuple[Value, ...]) -> None:
        """Notes what an instruction makes, one value for every array of its result."""
        self._made[computation.name, instruction.name] = values

    def value(self, computation: Computation, name: str) -> Value:
        """What a name stands for where it is read."""
        at, index = computation.instructions[name], 0
        for _ in range(_MOST_STEPS):
            made = self._made.get((computation.name, at.name))
            if made is not None and index < len(made):
                return made[index]
            before = self._before(computation, at, index)
            if before is None:
                break
            computation, at, index = before
        return outside((computation.name, at.name, index), self._bytes(computation, at, index))

    def loop_of(self, computation: Computation) -> Place | None:
        """The loop whose body a computation is."""
        callers = self._callers.get(computation.name, ())
        return callers[0] if len(callers) == 1 and callers[0][1].opcode == "while" else None

    def is_handed_on(self, body: Computation, index: int) -> bool:
        """Whether an element of a loop's tuple is the same in every run."""
        root = body.instructions[body.root]
        if root.opcode != "tuple" or index >= len(root.operands):
            return False
        at = body.instructions[root.operands[index]]
        for _ in range(_MOST_STEPS):
            if at.opcode not in VIEWS or not at.operands:
                break
            at = body.instructions[at.operands[0]]
        is_element = at.opcode == "get-tuple-element" and at.number == index
        return is_element and body.instructions[at.operands[0]].opcode == "parameter"

    def _before(
        self, computation: Computation, at: Instruction, index: int
    ) -> tuple[Computation, Instruction, int] | None:
        """One step back; None: it begins here, or nobody knows."""
        own = computation.instructions
        if at.opcode in VIEWS and at.operands:
            return computation, own[at.operands[0]], index
        if at.opcode == "get-tuple-element" and at.operands and not index:
            return computation, own[at.operands[0]], at.number
        if at.opcode == "tuple" and index < len(at.operands):
            return computation, own[at.operands[index]], 0
        if at.opcode == "while":
            return self._after_loop(computation, at, index)
        if at.opcode == "call" and (called := self._module.called(at, "to_apply")) is not None:
            return called, called.instructions[called.root], index
        return self._argument(computation, at, index) if at.opcode == "parameter" else None

    def _after_loop(
        self, computation: Computation, loop: Instruction, index: int
    ) -> tuple[Computation, Instruction, int] | None:
        body = self._module.called(loop, "body")
        if body is None or not self.through_loops or self.loop_of(body) is None:
            return None
        if self.is_handed_on(body, index):
            return computation, self._module.operand(computation, loop, 0), index
        return body, body.instructions[body.root], index

    def _argument(
        self, computation: Computation, at: Instruction, index: int
    ) -> tuple[Computation, Instruction, int] | None:
        callers = self._callers.get(computation.name, ())
        if len(callers) != 1:
            return None
        above, caller = callers[0]
        if caller.opcode == "call":
            return above, self._module.operand(above, caller, at.number), index
        if not self.through_loops or not self.is_handed_on(computation, index):
            return None
        return above, self._module.operand(above, caller, 0), index

    def _bytes(self, computation: Computation, at: Instruction, index: int) -> float:
        """Of an array; none of a number."""
        if len(at.shapes) == 1:
            return own_shape(self._module, computation, at.name).n_bytes if at.shapes[0].dims else 0.0
        return at.shapes[index].n_bytes if index < len(at.shapes) else 0.0

"""Finds the value that a name stands for: its memory and the operation that made it, through tuples, loops, calls and slices.

What a kernel may do with an HLO operation is one of the words of `chains`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import NamedTuple

from ...workload.captured.chains import COPY, KERNEL, ONCE, OTHER, POINTWISE, REDUCTION, SCATTER, Access
from .moves import Place, own_shape
from .types import Computation, Instruction, Module


class Value(NamedTuple):
    """An array, or a part of one, as whoever reads it finds it.

    Attributes:
        storage: name of the memory.
        maker: number of the operation that made it; None: it is from outside.
        n_bytes: of device memory, in the dtype of the program.
        start: where in that memory it begins, bytes.
        slices: value of its slices, where a loop writes one in every run.
    """

    storage: Hashable
    maker: int | None
    n_bytes: float
    start: int = 0
    slices: Slices | None = None

    @property
    def access(self) -> Access:
        """Read access to the value."""
        makers = frozenset() if self.maker is None else frozenset({self.maker})
        return Access(makers, self.storage, self.start, self.start + round(self.n_bytes), self.n_bytes)


class Slices(NamedTuple):
    """Equal parts of an array.

    Attributes:
        one: value written to a part.
        n_bytes: of a part, as the text has it.
    """

    one: Value
    n_bytes: float


def outside(storage: Hashable, n_bytes: float) -> Value:
    """A value that no operation of the pass makes."""
    return Value(storage, None, n_bytes)


# The same bytes in the same or another order: products read rows or columns, and kernels write where they are told to.
VIEWS = frozenset({"bitcast", "bitcast-convert", "reshape", "copy", "transpose", "opt-barrier"})
SLICES = frozenset({"slice", "dynamic-slice"})
NO_VALUES = frozenset({"constant", "iota", "partition-id", "replica-id", "rng-get-and-update-state"})
_POINTWISE = frozenset({
    "abs", "add", "and", "atan2", "broadcast", "cbrt", "ceil", "clamp", "clz", "compare", "complex", "convert", "cosine",
    "divide", "erf", "exponential", "exponential-minus-one", "floor", "imag", "iota", "is-finite", "log", "log-plus-one",
    "logistic", "map", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power", "real",
    "reduce-precision", "remainder", "round-nearest-afz", "round-nearest-even", "rsqrt", "select", "shift-left",
    "shift-right-arithmetic", "shift-right-logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor",
    "slice", "dynamic-slice", "gather", "reverse",
})  # fmt: skip
_ROLES = {
    **dict.fromkeys(_POINTWISE, POINTWISE),
    **dict.fromkeys(("reduce", "reduce-window", "cumsum"), REDUCTION),
    **dict.fromkeys(("concatenate", "copy", "dynamic-update-slice", "pad"), COPY),
    **dict.fromkeys(("dot", "ragged-dot", "convolution"), KERNEL),
    **dict.fromkeys(("rng", "rng-bit-generator"), ONCE),
    "scatter": SCATTER,
}


def role_of(instruction: Instruction) -> str:
    """A word of `chains`; calls into libraries and unknown operations are kernels of their own."""
    return _ROLES.get(instruction.opcode, OTHER)


def least_operands(instruction: Instruction) -> int:
    """Operands without which an operation cannot be."""
    if instruction.opcode in ("dynamic-update-slice", "gather"):
        return 2
    return (
        1 if instruction.opcode in _ROLES and instruction.opcode != "iota" and _ROLES[instruction.opcode] != ONCE else 0
    )


def read_operands(instruction: Instruction) -> tuple[str, ...]:
    """Names of the arrays that an operation reads; not those that hold positions, or initial values."""
    operands = instruction.operands
    if instruction.opcode in ("slice", "dynamic-slice", "pad"):
        return operands[:1]
    if instruction.opcode in ("reduce", "reduce-window"):
        return operands[: max(len(operands) // 2, 1)]
    if instruction.opcode == "dynamic-update-slice":
        return operands[1:2]
    return operands[1:] if instruction.opcode == "scatter" else operands


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
        self._callers = module.callers("while", "call")

    def keep(self, computation: Computation, instruction: Instruction, values: tuple[Value, ...]) -> None:
        """Notes the values that an instruction makes, one for every array of its result."""
        self._made[computation.name, instruction.name] = values

    def value(self, computation: Computation, name: str) -> Value:
        """Returns the value of a name where it is read."""
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
        at = body.behind(body.instructions[root.operands[index]], VIEWS)
        is_element = at.opcode == "get-tuple-element" and at.number == index
        return is_element and body.instructions[at.operands[0]].opcode == "parameter"

    def _before(
        self, computation: Computation, at: Instruction, index: int
    ) -> tuple[Computation, Instruction, int] | None:
        """Returns the place one step back; None: the value begins here, or its origin is not known."""
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
        """Returns the bytes of an array; 0 for a number."""
        if len(at.shapes) == 1:
            return own_shape(self._module, computation, at.name).n_bytes if at.shapes[0].dims else 0.0
        return at.shapes[index].n_bytes if index < len(at.shapes) else 0.0


_RANGE = re.compile(r"\[(\d{1,18}):(\d{1,18})(?::\d{1,18})?\]")


def part_of(module: Module, computation: Computation, at: Instruction, value: Value) -> Value:
    """Returns the part of a value that a slice is; `slices` stays where it is one of those that a loop wrote."""
    source = module.operand(computation, at, 0)
    if not source.shapes:
        return value
    if value.slices is not None and at.n_bytes == value.slices.n_bytes:
        return value
    share = at.shapes[0].n_elements / max(source.shapes[0].n_elements, 1)
    start = value.start + round(value.n_bytes * _offset(at, source))
    return Value(value.storage, value.maker, value.n_bytes * min(share, 1.0), start)


def _offset(at: Instruction, source: Instruction) -> float:
    """Returns the begin of a slice as a share of the whole; 0 where only the run tells."""
    ranges = _RANGE.findall(at.attributes.get("slice", ""))
    dims = source.shapes[0].dims
    if len(ranges) != len(dims):
        return 0.0
    offset = 0
    for (first, _), size in zip(ranges, dims, strict=True):
        offset = offset * size + int(first)
    return offset / max(source.shapes[0].n_elements, 1)

"""What a kernel may do with an HLO operation, as one of the words of `chains`."""

from __future__ import annotations

from .....workload.captured.chains import COPY, KERNEL, ONCE, OTHER, POINTWISE, REDUCTION, SCATTER
from ..text.types import Instruction

# The same bytes in the same or another order: products read rows or columns, and kernels write where they are told to.
VIEWS = frozenset({"bitcast", "bitcast-convert", "reshape", "copy", "transpose", "opt-barrier"})
SLICES = frozenset({"slice", "dynamic-slice"})
NO_VALUES = frozenset({"constant", "iota", "partition-id", "replica-id", "rng-get-and-update-state"})
# fmt: off
_POINTWISE = frozenset({
    "abs", "add", "and", "atan2", "broadcast", "cbrt", "ceil", "clamp", "clz", "compare", "complex", "convert", "cosine",
    "divide", "erf", "exponential", "exponential-minus-one", "floor", "imag", "iota", "is-finite", "log", "log-plus-one",
    "logistic", "map", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power", "real",
    "reduce-precision", "remainder", "round-nearest-afz", "round-nearest-even", "rsqrt", "select", "shift-left",
    "shift-right-arithmetic", "shift-right-logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor",
    "slice", "dynamic-slice", "gather", "reverse",
})
# fmt: on
_ROLES = {
    **dict.fromkeys(_POINTWISE, POINTWISE),
    **dict.fromkeys(("reduce", "reduce-window", "cumsum"), REDUCTION),
    **dict.fromkeys(("concatenate", "copy", "dynamic-update-slice", "pad"), COPY),
    **dict.fromkeys(("dot", "ragged-dot", "convolution"), KERNEL),
    **dict.fromkeys(("rng", "rng-bit-generator"), ONCE),
    "scatter": SCATTER,
}


def role_of(instruction: Instruction) -> str:
    """A word of `chains`; calls into libraries and whatever is not known are kernels of their own."""
    return _ROLES.get(instruction.opcode, OTHER)


def least_operands(instruction: Instruction) -> int:
    """Operands without which an operation cannot be."""
    if instruction.opcode in ("dynamic-update-slice", "gather"):
        return 2
    return (
        1 if instruction.opcode in _ROLES and instruction.opcode != "iota" and _ROLES[instruction.opcode] != ONCE else 0
    )


def read_operands(instruction: Instruction) -> tuple[str, ...]:
    """Names of the arrays that an operation reads; not those that only say where, or what it begins with."""
    operands = instruction.operands
    if instruction.opcode in ("slice", "dynamic-slice", "pad"):
        return operands[:1]
    if instruction.opcode in ("reduce", "reduce-window"):
        return operands[: max(len(operands) // 2, 1)]
    if instruction.opcode == "dynamic-update-slice":
        return operands[1:2]
    return operands[1:] if instruction.opcode == "scatter" else operands

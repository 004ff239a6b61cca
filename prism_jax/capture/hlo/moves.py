"""Follows values of HLO through moves and conversions: their bytes, and which products are gradients of weights.

XLA for CPUs computes and communicates in fp32 what the program says in bf16: it converts before and after. Converts that it put
there carry no name of the user's program, which tells them from the user's own. Likewise it sums gradients over all ranks and
keeps a slice, where XLA for accelerators has a reduce-scatter.

Bytes are those of device memory that an instruction reads and writes, as XLA's cost analysis counts: a value of which a fusion
only takes slices is read slice by slice, and an update in place writes what it updates. Caches are left out. Values that XLA for
CPUs widened count as what they were.

A product of a layer multiplies activations by weights. Of the two that differentiation makes of it, one multiplies by the weights
again (the gradient of its input), and the other does not. Weights are arguments of the program, also where loops hand them on
from trip to trip as they are. The products of attention read no weights in either pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .types import ArrayShape, Computation, Instruction, Module

_MOVES = frozenset({"copy", "bitcast", "reshape", "transpose", "convert"})
_ALSO_BACK = _MOVES | {
    "slice", "dynamic-slice", "broadcast", "all-gather", "collective-permute", "all-to-all", "concatenate",
}  # fmt: skip
_MOST_STEPS = 256
Place = tuple[Computation, Instruction]


def own_shape(module: Module, computation: Computation, name: str, outer: tuple[Place, ...] = ()) -> ArrayShape:
    """Shape of a value, in the dtype that it had before XLA widened it.

    Args:
        name: of the instruction that makes it, in `computation`; of a tuple its first array counts.
        outer: fusions that the computation is inside of, outermost first, each with the computation that it is in.
    """
    made = computation.instructions[name]
    shape = made.shapes[0] if made.shapes else ArrayShape("token", ())
    narrow = shape
    for inner, at in back(module, computation, made, outer):
        if at.opcode != "convert":
            continue
        source = module.operand(inner, at, 0)
        before = source.shapes[0] if source.shapes else shape
        if at.op_name or not before.is_float:
            break
        narrow = before if _width(before) < _width(narrow) else narrow
    return ArrayShape(narrow.dtype, shape.dims)


def is_widening(module: Module, computation: Computation, instruction: Instruction) -> bool:
    """Whether an instruction only moves a value and converts it to the format in which XLA for CPUs computes."""
    if len(instruction.shapes) != 1 or instruction.opcode not in ("convert", "fusion"):
        return False
    printed, own = instruction.shapes[0], own_shape(module, computation, instruction.name)
    if _width(own) >= _width(printed):
        return False
    called = module.called(instruction, "calls")
    inside = [instruction] if called is None else list(called.instructions.values())
    return all(one.opcode in _MOVES or one.opcode in ("parameter", "constant") for one in inside)


def _width(shape: ArrayShape) -> float:
    return ArrayShape(shape.dtype, ()).n_bytes


def back(module: Module, computation: Computation, made: Instruction, outer: tuple[Place, ...] = ()) -> Iterator[Place]:
    """The instruction itself and those before it, as long as they only move or convert; fusions are looked into and out of."""
    at, around = made, list(outer)
    for _ in range(_MOST_STEPS):
        yield computation, at
        if at.opcode == "fusion" and (inner := module.called(at, "calls")) is not None:
            around.append((computation, at))
            computation, at = inner, inner.instructions[inner.root]
            continue
        if at.opcode == "parameter" and around:
            position = at.number
            computation, fusion = around.pop()
            at = module.operand(computation, fusion, position)
            continue
        if at.opcode not in _ALSO_BACK and not _is_promoted(at):
            return
        at = module.operand(computation, at, 0)


def _is_promoted(at: Instruction) -> bool:
    """Whether a sum over devices was widened, which its computation says in its name."""
    return (
        at.opcode == "all-reduce" and at.attributes.get("to_apply", "").endswith("_promoted") and len(at.operands) == 1
    )


def is_only_sliced(module: Module, computation: Computation, name: str, parts: int) -> bool:
    """Whether all that is ever read of a value is one of `parts` equal slices of it.

    Args:
        name: of the instruction that makes it.
    """
    whole = computation.instructions[name].shapes[0].n_elements
    work: list[tuple[Computation, str, tuple[Place, ...]]] = [(computation, name, ())]
    n_slices = 0
    for _ in range(_MOST_STEPS):
        if not work:
            return n_slices > 0
        inner, value, outer = work.pop()
        if inner.root == value:
            if not outer:
                return False
            *rest, (above, fusion) = outer
            work.append((above, fusion.name, tuple(rest)))
            continue
        for user in inner.users_of(value):
            called = module.called(user, "calls") if user.opcode == "fusion" else None
            if called is not None:
                work += [(called, one, (*outer, (inner, user))) for one in _parameters(called, user, value)]
            elif user.opcode in _MOVES:
                work.append((inner, user.name, outer))
            elif user.opcode in ("dynamic-slice", "slice") and user.shapes[0].n_elements * parts == whole:
                n_slices += 1
            else:
                return False
    return False


def _parameters(called: Computation, user: Instruction, value: str) -> Iterator[str]:
    """Parameters of a fused computation that stand for a value."""
    positions = {str(number) for number, operand in enumerate(user.operands) if operand == value}
    return (one.name for one in called.instructions.values() if one.opcode == "parameter" and one.literal in positions)


_FUSIONS = (
    "fusion",
    "fusion-start",
)  # the second next to others, on GPUs; what it hands on besides its result is no traffic
_LIBRARIES = ("__cublas$", "__cudnn$", "__triton")
_SLICES = ("dynamic-slice", "slice", "gather")
_ALONE = ("bitcast", "copy", "convert", "reshape")


class HloTraffic(NamedTuple):
    """Bytes read and bytes written."""

    read: float
    written: float

    @property
    def n_bytes(self) -> float:
        """Bytes read and written."""
        return self.read + self.written


def traffic_of(module: Module, computation: Computation, instruction: Instruction) -> HloTraffic:
    """Bytes of one run of an instruction."""
    opcode = instruction.opcode
    if opcode in _FUSIONS:
        called = module.called(instruction, "calls")
        if called is not None:
            return _fused(module, computation, instruction, called)
    operands = [computation.instructions[name] for name in instruction.operands]
    if opcode in _SLICES:
        indices = operands[1].n_bytes if opcode == "gather" and len(operands) > 1 else 0.0
        return HloTraffic(instruction.n_bytes + indices, instruction.n_bytes)
    if opcode == "dynamic-update-slice" and len(operands) > 1:
        return HloTraffic(operands[1].n_bytes, operands[1].n_bytes)
    if opcode == "scatter" and len(operands) > 2:
        updates = operands[2].n_bytes
        return HloTraffic(2.0 * updates + operands[1].n_bytes, updates)
    if opcode == "copy-start":
        n_bytes = operands[0].n_bytes if operands else 0.0
        return HloTraffic(n_bytes, n_bytes)
    return HloTraffic(sum(one.n_bytes for one in operands), instruction.n_bytes - _scratch_bytes(instruction))


def _scratch_bytes(instruction: Instruction) -> float:
    """Bytes that a call into a library lists behind its results for it to work in; what it needs of them stays in the cache."""
    target, last = instruction.target, instruction.shapes[-1:]
    is_library = len(instruction.shapes) > 1 and target.startswith(_LIBRARIES)
    return last[0].n_bytes if is_library and last[0].dtype in ("s8", "u8") else 0.0


def _fused(module: Module, computation: Computation, fusion: Instruction, called: Computation) -> HloTraffic:
    read = 0.0
    for parameter in called.instructions.values():
        if parameter.opcode != "parameter":
            continue
        given = module.operand(computation, fusion, parameter.number)
        whole = given.n_bytes
        own = own_shape(module, computation, given.name).n_bytes if len(given.shapes) == 1 else whole
        read += min(whole, _read_of(called, parameter, whole)) * (own / whole if whole else 1.0)
    return HloTraffic(read, _written(called, fusion))


def _read_of(called: Computation, parameter: Instruction, whole: float) -> float:
    """Bytes of a parameter that the fused computation reads."""
    total, values, seen = 0.0, [parameter.name], {parameter.name}
    while values:
        value = values.pop()
        for user in called.users_of(value):
            if user.opcode == "bitcast":  # the same bytes under another shape
                values += [user.name] if user.name not in seen else []
                seen.add(user.name)
            elif user.opcode in _SLICES and user.operands[0] == value:
                total += user.n_bytes
            elif not (user.opcode == "dynamic-update-slice" and user.operands[0] == value):
                return whole
    return total


def _written(called: Computation, fusion: Instruction) -> float:
    root = called.instructions[called.root]
    results = [called.instructions[name] for name in root.operands] if root.opcode == "tuple" else [root]
    written = 0.0
    for result in results:
        at = called.behind(result, _ALONE)
        if at.opcode == "dynamic-update-slice" and len(at.operands) > 1:
            written += called.instructions[at.operands[1]].n_bytes
        else:
            written += result.n_bytes
    return min(written, fusion.n_bytes)


_WRAP = re.compile(r"(?:transpose|jvp)\(|\)|/?(?:rematted_computation|checkpoint|eval_jaxpr)\b")
_SAME = ("copy", "bitcast")
_GRADIENTS_MOST_STEPS = 16


def layer_key(op_name: str) -> str:
    """Returns a text that is the same for a product of the forward pass and those that differentiation made of it."""
    return _WRAP.sub("", op_name)


class Weights:
    """Tells values that are arguments of a module from those that it computes."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._loops = {body: loops[-1] for body, loops in module.callers("while").items()}

    def are_read_by(self, computation: Computation, product: Instruction, outer: tuple[Place, ...]) -> bool:
        """Whether one of the factors of a product is a weight; `outer` are the fusions that it is inside of."""
        names = product.operands[:2]
        return any(self._is_weight(computation, computation.instructions[name], outer) for name in names)

    def _is_weight(self, computation: Computation, at: Instruction, outer: tuple[Place, ...]) -> bool:
        for _ in range(_GRADIENTS_MOST_STEPS):
            *_, (computation, at) = back(self._module, computation, at, outer)
            if at.opcode == "parameter":
                return computation.name == self._module.entry
            before = self._before_loop(computation, at)
            if before is None:
                return False
            (computation, at), outer = before, ()
        return False

    def _before_loop(self, computation: Computation, at: Instruction) -> Place | None:
        """Returns the place of an element of a loop's tuple before the loop; None where the loop changes it, or it is none."""
        loop = self._loops.get(computation.name)
        if at.opcode != "get-tuple-element" or loop is None:
            return None
        root = computation.instructions[computation.root]
        given = self._module.operand(*loop, 0)
        places = [one.operands for one in (root, given) if one.opcode == "tuple" and at.number < len(one.operands)]
        if len(places) < 2 or computation.instructions[at.operands[0]].opcode != "parameter":
            return None
        handed = computation.behind(computation.instructions[places[0][at.number]], _SAME)
        if handed.opcode != "get-tuple-element" or handed.number != at.number:
            return None
        return loop[0], loop[0].instructions[places[1][at.number]]

"""Where a value comes from and where it goes, through what only moves or converts it.

XLA for CPUs computes and communicates in fp32 what the program says in bf16: it converts before and after. Converts that it put
there carry no name of the user's program, which tells them from the user's own. Likewise it sums gradients over all ranks and
keeps a slice, where XLA for accelerators has a reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Iterator

from .text.types import Computation, Instruction, Module, Shape

_MOVES = frozenset({"copy", "bitcast", "reshape", "transpose", "convert"})
_ALSO_BACK = _MOVES | {
    "slice",
    "dynamic-slice",
    "broadcast",
    "all-gather",
    "collective-permute",
    "all-to-all",
    "concatenate",
}
_MOST_STEPS = 256
Place = tuple[Computation, Instruction]


def own_shape(module: Module, computation: Computation, name: str, outer: tuple[Place, ...] = ()) -> Shape:
    """Shape of a value, in the dtype that it had before XLA widened it.

    Args:
        name: of the instruction that makes it, in `computation`; of a tuple its first array counts.
        outer: fusions that the computation is inside of, outermost first, each with the computation that it is in.
    """
    made = computation.instructions[name]
    shape = made.shapes[0] if made.shapes else Shape("token", ())
    narrow = shape
    for inner, at in back(module, computation, made, outer):
        if at.opcode != "convert":
            continue
        source = module.operand(inner, at, 0)
        before = source.shapes[0] if source.shapes else shape
        if at.op_name or not before.is_float:
            break
        narrow = before if _width(before) < _width(narrow) else narrow
    return Shape(narrow.dtype, shape.dims)


def is_widening(module: Module, computation: Computation, instruction: Instruction) -> bool:
    """Whether all that an instruction does is to move a value and to convert it to what XLA for CPUs computes in."""
    if len(instruction.shapes) != 1 or instruction.opcode not in ("convert", "fusion"):
        return False
    printed, own = instruction.shapes[0], own_shape(module, computation, instruction.name)
    if _width(own) >= _width(printed):
        return False
    called = module.called(instruction, "calls")
    inside = [instruction] if called is None else list(called.instructions.values())
    return all(one.opcode in _MOVES or one.opcode in ("parameter", "constant") for one in inside)


def _width(shape: Shape) -> float:
    return Shape(shape.dtype, ()).n_bytes


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

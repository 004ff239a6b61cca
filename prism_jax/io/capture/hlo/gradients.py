"""Which products of the backward pass are gradients of weights: those of a layer that read none of its weights.

A product of a layer multiplies activations by weights. Of the two that differentiation makes of it, one multiplies by the weights
again (the gradient of its input), and the other does not. Weights are arguments of the program, also where loops hand them on
from trip to trip as they are. The products of attention read no weights in either pass.
"""

from __future__ import annotations

import re

from .moves import Place, back
from .text.types import Computation, Instruction, Module

_WRAP = re.compile(r"(?:transpose|jvp)\(|\)|/?(?:rematted_computation|checkpoint|eval_jaxpr)\b")
_SAME = ("copy", "bitcast")
_MOST_STEPS = 16


def layer_key(op_name: str) -> str:
    """The same text for a product of the forward pass and those that differentiation made of it."""
    return _WRAP.sub("", op_name)


class Weights:
    """Tells values that are arguments of a module from those that it computes."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._loops: dict[str, Place] = {}  # body of a loop -> the loop
        for computation in module.computations.values():
            for one in computation.instructions.values():
                body = module.called(one, "body") if one.opcode == "while" else None
                if body is not None:
                    self._loops[body.name] = computation, one

    def are_read_by(self, computation: Computation, product: Instruction, outer: tuple[Place, ...]) -> bool:
        """Whether one of the factors of a product is a weight; `outer` are the fusions that it is inside of."""
        names = product.operands[:2]
        return any(self._is_weight(computation, computation.instructions[name], outer) for name in names)

    def _is_weight(self, computation: Computation, at: Instruction, outer: tuple[Place, ...]) -> bool:
        for _ in range(_MOST_STEPS):
            *_, (computation, at) = back(self._module, computation, at, outer)
            if at.opcode == "parameter":
                return computation.name == self._module.entry
            before = self._before_loop(computation, at)
            if before is None:
                return False
            (computation, at), outer = before, ()
        return False

    def _before_loop(self, computation: Computation, at: Instruction) -> Place | None:
        """What an element of a loop's tuple is before the loop; None where the loop changes it, or it is none."""
        loop = self._loops.get(computation.name)
        if at.opcode != "get-tuple-element" or loop is None:
            return None
        root = computation.instructions[computation.root]
        given = self._module.operand(*loop, 0)
        places = [one.operands for one in (root, given) if one.opcode == "tuple" and at.number < len(one.operands)]
        if len(places) < 2 or computation.instructions[at.operands[0]].opcode != "parameter":
            return None
        handed = computation.instructions[places[0][at.number]]
        while handed.opcode in _SAME:
            handed = computation.instructions[handed.operands[0]]
        if handed.opcode != "get-tuple-element" or handed.number != at.number:
            return None
        return loop[0], loop[0].instructions[places[1][at.number]]

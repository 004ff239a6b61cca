"""Which loops are layers with experts: those that choose tokens or experts by `top_k`, and the backward passes of these.

JAX leaves no names of layers in a program; the operations that differentiation made of a product are known by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

ROUTES = "top_k"  # in the names of operations
PREFIX = "moe"  # of the modules of such layers


@dataclass
class Routing:
    """What is noted of loops on the way.

    Attributes:
        loops: numbers of the loops that choose.
        products: loop -> keys of its products, see `gradients.layer_key`.
        forward: loops of the forward pass.
    """

    loops: set[int] = field(default_factory=set)
    products: dict[int, set[str]] = field(default_factory=dict)
    forward: set[int] = field(default_factory=set)

    def note(self, loop: int, op_name: str, phase: str) -> None:
        """Notes an instruction."""
        if loop and ROUTES in op_name:
            self.loops.add(loop)
        if loop and phase == "F":
            self.forward.add(loop)

    def expert_loops(self) -> Set[int]:
        """Loops that choose, and those with products that only they have among the loops of the forward pass."""
        own = _keys(self.products, self.loops) - _keys(self.products, self.forward - self.loops)
        return self.loops | {loop for loop, keys in self.products.items() if loop not in self.forward and keys & own}


def _keys(products: Mapping[int, Set[str]], loops: Set[int]) -> set[str]:
    return {key for loop in loops for key in products.get(loop, ())}

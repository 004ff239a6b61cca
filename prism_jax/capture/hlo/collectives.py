"""Reads collectives of HLO, with kind, groups and bytes as networks count them, and finds the loops that are layers with experts.

An all-reduce of which every device keeps only its own slice is a reduce-scatter: XLA for GPUs and TPUs makes one of it, XLA for
CPUs does not. Layers with experts are loops that choose tokens or experts by `top_k`, and the backward passes of these. JAX
leaves no names of layers in a program; the operations that differentiation made of a product are known by its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from ...core.lazy import np
from .groups import Groups, permuted_pairs, replica_groups
from .moves import Place, is_only_sliced, own_shape
from .types import Computation, Instruction, Module

KINDS = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "ragged-all-to-all": "all_to_all",
    "collective-broadcast": "broadcast",
    "collective-permute": "permute",
    "send": "send",
}


@dataclass(frozen=True, slots=True)
class HloCollective:
    """One collective.

    Attributes:
        kind: as captured programs call it.
        groups: who takes part; of a permute or send pairs of source and target.
        n_bytes: as `Network.collective` counts them, in the dtype of the program.
        dtype: of the first array, as captured programs call it.
        made_of_all_reduce: it is an all-reduce in the text.
        widened_bytes: in the text, where XLA widened the arrays; else `n_bytes`.
    """

    kind: str
    groups: Groups
    n_bytes: float
    dtype: str
    made_of_all_reduce: bool = False
    widened_bytes: float = 0.0


def base_opcode(instruction: Instruction) -> str:
    """The collective that an instruction is or starts; empty where it is none."""
    opcode = instruction.opcode.removesuffix("-start")
    return opcode if opcode in KINDS else ""


def exchanging(module: Module, computation: Computation, instruction: Instruction) -> Iterator[Place]:
    """The instruction itself where it is a collective, or those that are fused into it, as XLA for TPUs does."""
    if base_opcode(instruction):
        yield computation, instruction
    elif instruction.opcode == "fusion" and (called := module.called(instruction, "calls")) is not None:
        yield from ((called, one) for one in called.instructions.values() if base_opcode(one))


def exchanges_of(module: Module, computation: Computation, instruction: Instruction) -> list[HloCollective]:
    """The collectives that an instruction stands for: none without peers, two where one part of a sum is sliced and one is not.

    Raises:
        DataError: groups or operands that are missing or do not fit.
    """
    opcode = base_opcode(instruction)
    if opcode in ("send", "collective-permute"):
        return _messages(module, computation, instruction, opcode)
    groups = replica_groups(module, instruction)
    if groups.size < 2 or not instruction.operands:
        return []
    if opcode == "all-reduce":
        return _sums(module, computation, instruction, groups)
    factor = groups.size if opcode == "all-gather" else 1
    names = instruction.operands[:1] if opcode.startswith("ragged") else instruction.operands
    return [_exchange(module, computation, list(names), KINDS[opcode], groups, factor)]


def _sums(module: Module, computation: Computation, instruction: Instruction, groups: Groups) -> list[HloCollective]:
    """An all-reduce of one array or several."""
    sliced, whole = [], []
    for index, operand in enumerate(instruction.operands):
        results = _results(computation, instruction, index)
        kept = [is_only_sliced(module, computation, name, groups.size) for name in results]
        (sliced if kept and all(kept) else whole).append(operand)
    found = []
    if whole:
        found.append(_exchange(module, computation, whole, "all_reduce", groups))
    if sliced:
        made = _exchange(module, computation, sliced, "reduce_scatter", groups)
        found.append(replace(made, made_of_all_reduce=True))
    return found


def _results(computation: Computation, instruction: Instruction, index: int) -> list[str]:
    """Names of an operand's result: the instruction, its wait, or an element of its tuple."""
    at = instruction
    if at.opcode.endswith("-start"):
        at = next((user for user in computation.users_of(at.name) if user.opcode.endswith("-done")), at)
    if len(instruction.operands) == 1:
        return [at.name]
    takes = (user for user in computation.users_of(at.name) if user.opcode == "get-tuple-element")
    return [user.name for user in takes if user.number == index]


def _exchange(
    module: Module, computation: Computation, names: list[str], kind: str, groups: Groups, factor: int = 1
) -> HloCollective:
    own = [own_shape(module, computation, name) for name in names]
    n_bytes = factor * sum(shape.n_bytes for shape in own)
    widened = factor * sum(computation.instructions[name].n_bytes for name in names)
    return HloCollective(kind, groups, n_bytes, own[0].plain_dtype, widened_bytes=widened)


def _messages(module: Module, computation: Computation, instruction: Instruction, opcode: str) -> list[HloCollective]:
    if opcode == "send" and "source_target_pairs" not in instruction.attributes:
        return []  # to the host
    pairs = permuted_pairs(module, instruction)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if len(pairs) == 0 or not instruction.operands:
        return []
    distance = np.abs(pairs[:, 0] - pairs[:, 1])
    values, counts = np.unique(distance, return_counts=True)
    usual = pairs[distance == values[counts.argmax()]]
    return [
        _exchange(module, computation, list(instruction.operands[:1]), KINDS[opcode], Groups(np.sort(usual, axis=1)))
    ]


ROUTES = "top_k"  # in the names of operations
PREFIX = "moe"  # of the modules of such layers


@dataclass
class Routing:
    """Loops that route tokens, and facts noted of loops on the way.

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

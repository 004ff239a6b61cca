"""Makes rows of a device's work: products and fused attention by their sizes, all else by the bytes that it moves.

What reading HLO had to assume is told, one sentence each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...workload.captured.program import CapturedOp
from .attention import CUDNN, Attention, attention_of
from .groups import MeshAxes
from .moves import HloTraffic, Place, own_shape, traffic_of
from .products import Product, is_again, layer_of, named, product_of
from .types import Computation, Instruction, Module
from .walk import ModuleWalk, Visit

# No work on the device: names, tuples, views, and what XLA keeps for itself.
_NOTHING = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
    "opt-barrier", "add-dependency", "domain", "async-update", "infeed", "outfeed", "recv", "get-dimension-size",
    "rng-get-and-update-state",
})  # fmt: skip
_NO_CALLS = frozenset({
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "AllocateBuffer", "AssumeGatherIndicesInBound",
    "MoveToHost", "MoveToDevice", "annotate_device_placement", "LayoutConstraint",
})  # fmt: skip
_BY_BYTES = ("TopK", "__topk", "__cub$", "Sort", "PadToStatic", "SliceToDynamic")  # no products inside
LEAST_BYTES = 16.0  # counters of loops
_MOST_INNER = 10_000  # instructions of a fusion that are looked through for products


@dataclass
class ProgramTally:
    """Counts of special cases met on the way, for `notes_of`; unknown calls by their targets, and calls that are attention by
    shape.
    """

    again_flops: float = 0.0
    flops: float = 0.0
    from_all_reduce: int = 0
    widened: int = 0
    unknown_calls: set[str] = field(default_factory=set)
    attention_calls: set[str] = field(default_factory=set)
    asynchronous: int = 0
    backward: int = 0
    expert_loops: int = 0
    combined: int = 0


def is_work(instruction: Instruction) -> bool:
    """Whether a device does anything for it."""
    return instruction.opcode not in _NOTHING


def ops_of(module: Module, visit: Visit, tally: ProgramTally) -> Iterator[CapturedOp]:
    """The rows of one run of an instruction."""
    instruction, computation = visit.instruction, visit.computation
    target = instruction.target
    if target in _NO_CALLS:
        return
    traffic = traffic_of(module, computation, instruction)
    layer = layer_of(named(module, instruction))
    attention = attention_of(computation, instruction) if target else None
    if attention is not None:
        tally.attention_calls |= {target} if not target.startswith(CUDNN) else set()
        yield _attention_op(module, visit, attention, traffic, layer)
        return
    if target.startswith(CUDNN):
        raise module.refused(
            instruction.line, f"{target[:60]} {instruction.name[:60]}: no queries, keys and values of 4 dimensions"
        )
    found = list(products_in(module, computation, instruction))
    if not found:
        if target and not target.startswith(_BY_BYTES):
            tally.unknown_calls.add(target)
        yield memory_op(instruction, visit.phase, traffic.n_bytes, traffic.written, layer)
    for number, one in enumerate(found):
        moved = traffic if number == 0 else HloTraffic(0.0, 0.0)
        yield product_op(
            module, one, visit.phase, moved.n_bytes, moved.written, layer, again=is_again(module, instruction)
        )


@dataclass(frozen=True, slots=True)
class FoundProduct:
    """A product, and where it stands: in fusions `outer`, outermost first."""

    product: Product
    computation: Computation
    instruction: Instruction
    outer: tuple[Place, ...]


def products_in(module: Module, computation: Computation, instruction: Instruction) -> Iterator[FoundProduct]:
    """Products that an instruction is or that are fused into it."""
    work: list[tuple[Computation, Instruction, tuple[Place, ...]]] = [(computation, instruction, ())]
    seen = 0
    while work and seen < _MOST_INNER:
        inner, at, outer = work.pop()
        seen += 1
        if at.opcode == "fusion" and (called := module.called(at, "calls")) is not None:
            around = (*outer, (inner, at))
            work += [(called, one, around) for one in reversed(list(called.instructions.values()))]
            continue
        if at.opcode not in ("dot", "convolution", "ragged-dot", "custom-call"):
            continue
        if product := product_of(module, inner, at):
            yield FoundProduct(product, inner, at, outer)


def product_op(
    module: Module, one: FoundProduct, phase: str, n_bytes: float, written: float, layer: str, *, again: bool
) -> CapturedOp:
    """The row of a product, in the dtype that the program says."""
    product = one.product
    name = ("dot" if product.kind == "gemm" else "convolution") + " again" * again
    dtype = own_shape(module, one.computation, one.instruction.operands[0], one.outer).plain_dtype
    return CapturedOp(
        name, product.kind, phase, dtype, product.shape, product.flops, n_bytes, layer, output_bytes=written
    )


def memory_op(
    instruction: Instruction,
    phase: str,
    n_bytes: float,
    written: float,
    layer: str,
    *,
    again: bool = False,
    fusible: bool = False,
) -> CapturedOp:
    """Row of an operation that is known by the bytes it moves: no work where these are the counter of a loop."""
    name = (f"custom-call {instruction.target[:60]}" if instruction.target else instruction.opcode) + " again" * again
    dtype = instruction.shapes[0].plain_dtype if instruction.shapes else "fp32"
    kind = "none" if n_bytes <= LEAST_BYTES else "memory"
    return CapturedOp(name, kind, phase, dtype, (), 0.0, n_bytes, layer, fusible=fusible, output_bytes=written)


def _attention_op(module: Module, visit: Visit, found: Attention, traffic: HloTraffic, layer: str) -> CapturedOp:
    """The row of fused attention, in the dtype of its queries."""
    dtype = own_shape(module, visit.computation, visit.instruction.operands[0]).plain_dtype
    return CapturedOp(
        name="attention",
        kind="attention",
        phase="B" if found.is_backward else visit.phase,
        dtype=dtype,
        shape=(found.batch_heads, found.q, found.kv, found.d, found.d_v),
        flops=found.flops,
        n_bytes=traffic.n_bytes,
        module=layer,
        causal=found.is_causal,
        output_bytes=traffic.written,
    )


def notes_of(module: Module, walk: ModuleWalk, met: ProgramTally, axes: MeshAxes) -> Iterator[str]:
    """Sentences for people who read a prediction."""
    if met.again_flops:
        share = met.again_flops / met.flops
        yield f"{share:.1%} of the FLOPs repeat work of the forward pass (rematerialisation); they are counted."
    if met.flops and not met.backward:
        yield "Nothing in the text is named as a part of a backward pass: all of it is counted as forward."
    yield from _exchanges(met)
    if met.expert_loops:
        yield f"{met.expert_loops} loops choose tokens (top_k), or are the backward passes of those: layers of experts."
    if walk.untold:
        names = ", ".join(walk.untold[:3])
        yield f"{len(walk.untold)} loops whose number of trips the text does not state are counted once: {names[:120]}."
    if walk.branches:
        yield f"{walk.branches} conditionals: the branch with the most FLOPs is counted."
    if met.attention_calls:
        names = ", ".join(sorted(met.attention_calls)[:5])
        yield f"Custom calls are taken as fused attention by the shapes of their operands: {names[:200]}."
    if met.unknown_calls:
        names = ", ".join(sorted(met.unknown_calls)[:5])
        yield f"Custom calls of unknown FLOPs are counted by their bytes: {names[:200]}."
    if axes.guessed:
        roles = ", ".join(f"{name} is {role}" for name, role in axes.guessed.items())
        yield f"The dimensions of the mesh were guessed from the groups of collectives: {roles[:200]}."
    if not module.is_scheduled:
        yield "The module is not scheduled: its order is that of the text."


def _exchanges(met: ProgramTally) -> Iterator[str]:
    """Yields the notes about collectives."""
    if met.from_all_reduce:
        yield (
            f"{met.from_all_reduce} all-reduces of which every device keeps its slice are counted as reduce-scatters, "
            "which XLA makes of them on GPUs and TPUs."
        )
    if met.widened:
        yield f"{met.widened} collectives that XLA for CPUs widened are counted in the dtype of the program."
    if not met.asynchronous:
        yield "No collective is asynchronous in the text: each one blocks. XLA for GPUs and TPUs overlaps some."
    if met.combined:
        yield f"{met.combined} gatherings of parameters are parts of others, as XLA for GPUs combines them."

"""What adapters add to a layer on one device: kernels, communication, saved tensors; and which input gradients nobody needs.

The products of both matrices of an adapter run forward, and each has an input gradient (B) and a weight gradient (W), in 16 bits
whatever the plan's dtype. Eager PEFT scales the result and adds it in passes of their own. Under tensor parallelism the narrow
side travels: that of a column-parallel matrix is gathered, that of a row-parallel one summed (NeMo, `ParallelLinearAdapter`).
Moving the result of a row-parallel adapter to where the layer's own is, which NeMo does next, is left out.
"""

from __future__ import annotations

from dataclasses import replace

from ....plan.plan import ParallelPlan
from ...base import Comm, SavedTensor
from ...kernels import Kernel, KernelTable
from ..op_lists.mlp import expert_tokens
from ..shard import Shard, gemm, stream
from ..sizes import TransformerSizes
from .targets import COLUMN, ROW, WHOLE, Target, is_on_experts, targets_of

# Compute in the order of a layer; what stands before the first adapter of layer 0 needs no gradient.
_ORDER = (
    ("qkv", "q", "q_down", "q_up", "kv_down", "kv_up"),
    ("flash", "scores", "softmax", "attention_dropout", "values", "rope", "qk_norm", "latent_norms", "assemble_kv"),
    ("attention_out",),
    ("router", "permute", "mlp_in", "experts_in", "shared_in"),
    ("mlp_act", "experts_act", "shared_act"),
    ("mlp_out", "experts_out", "shared_out"),
)


def adapter_ops(model: TransformerSizes, plan: ParallelPlan, shard: Shard, is_moe: bool) -> list[Kernel]:
    """Kernels of all adapters of a layer; named by the product they stand beside, a blank and their own name."""
    own = replace(shard.in_16_bits, trains=True)
    ops = [op for target in targets_of(model, is_moe) for op in _of_target(model, plan, own, target)]
    return [op._replace(dtype="bf16") if op.kernel == "gemm" else op for op in ops]


def product_of(name: str) -> str:
    """Name of the product that a kernel belongs to."""
    return name.partition(" ")[0]


def _of_target(model: TransformerSizes, plan: ParallelPlan, shard: Shard, target: Target) -> list[Kernel]:
    assert model.adapters is not None
    rows, batch = _rows(model, plan, shard, target)
    n_in, n_out, rank = _widths(target, model.adapters.rank, shard.tp)
    label, element = f"{target.product} {target.name}", shard.element_bytes
    ops = gemm(f"{label} a", rows, rank, n_in, shard, batch)
    ops += gemm(f"{label} b", rows, n_out, model.adapters.rank, shard, batch)
    entering, leaving = element * rows * batch * n_in, element * rows * batch * n_out
    if not model.adapters.fused:  # scale and add; scale the gradient and add that of the input
        ops += [
            stream(f"{label} add", "F", 5 * leaving, 2.0),
            stream(f"{label} add", "B", 2 * leaving + 3 * entering, 2.0),
        ]
    if model.adapters.dropout:
        both = 2 * entering + entering / element
        ops += [stream(f"{label} dropout", phase, both) for phase in ("F", "B")]
    return ops


def _rows(model: TransformerSizes, plan: ParallelPlan, shard: Shard, target: Target) -> tuple[float, float]:
    """(tokens, matrices) that one device works on."""
    if is_on_experts(target):
        n_local = target.n_copies / plan.ep
        return expert_tokens(model, plan, shard) / n_local, n_local
    return (shard.local_tokens if target.split == WHOLE else shard.tokens), 1.0


def _widths(target: Target, rank: int, tp: int) -> tuple[float, float, float]:
    """(input, output, rank of A's product) on one device."""
    n_in = target.n_in / tp if target.split == ROW else target.n_in
    n_out = target.n_out if target.split == WHOLE else target.n_out / tp
    return n_in, n_out, rank / tp if target.split == COLUMN else rank


def adapter_comms(model: TransformerSizes, plan: ParallelPlan, is_moe: bool) -> list[Comm]:
    """The narrow side of every adapter over the tensor-parallel ranks, both passes."""
    if plan.tp == 1 or model.adapters is None:
        return []
    shard, comms = Shard.of(model, plan), list[Comm]()
    for target in targets_of(model, is_moe):
        if target.split == WHOLE:
            continue
        rows, batch = _rows(model, plan, shard, target)
        kind = "all_gather" if target.split == COLUMN else "all_reduce"
        n_bytes = shard.element_bytes * rows * batch * model.adapters.rank
        comm = Comm("tp", kind, "F", n_bytes, plan.stride("tp"), plan.tp)
        back = comm._replace(kind="reduce_scatter", phase="B") if target.split == COLUMN else comm._replace(phase="B")
        comms += [comm, back]
    return comms


_INPUT_OF = {  # saved tensor -> product whose weight gradient reads it
    "qkv projection input": ("qkv", "q", "q_down", "kv_down"),
    "query latent and its norm": (),
    "mlp input": ("mlp_in", "shared_in"),
    "mlp down projection input": ("mlp_out",),
    "router input": ("shared_in",),
    "permuted tokens": ("experts_in",),
    "expert down projection input": ("experts_out",),
    "shared expert down projection input": ("shared_out",),
}


def adapted_saved_tensors(
    model: TransformerSizes, plan: ParallelPlan, lay: Shard, is_moe: bool, saved: list[SavedTensor]
) -> list[SavedTensor]:
    """`saved` of a layer that is trained in full, as its frozen matrices with adapters leave it.

    Notes:
        An input that only the weight gradient of a frozen matrix would read is not kept; an adapter reads it in 16 bits. With
        dropout every adapter keeps its own copy and a mask. The narrow product between A and B is kept.
    """
    if model.adapters is None:
        return saved
    own = targets_of(model, is_moe)
    read = {target.product for target in own}
    kept = [_kept(tensor, read, lay) for tensor in saved]
    for target in own:
        rows, batch = _rows(model, plan, lay, target)
        n_in, _, _ = _widths(target, model.adapters.rank, lay.tp)
        label = f"adapter {target.product} {target.name}"
        kept.append(SavedTensor(f"{label} narrow", lay.element_bytes * rows * batch * model.adapters.rank))
        if model.adapters.dropout:
            kept.append(SavedTensor(f"{label} dropout", (lay.element_bytes + 1.0) * rows * batch * n_in))
    return [tensor for tensor in kept if tensor.size_bytes]


def _kept(tensor: SavedTensor, read: set[str], lay: Shard) -> SavedTensor:
    readers = _INPUT_OF.get(tensor.name)
    if not readers:
        return tensor
    wide = tensor.size_bytes * lay.element_bytes / lay.saved_input_bytes
    return tensor._replace(size_bytes=wide if read.intersection(readers) else 0.0)


def without_unneeded_gradients(model: TransformerSizes, is_moe: bool, n_alike: int, table: KernelTable) -> KernelTable:
    """The kernels of a layer of the kind of layer 0, in the mean over the `n_alike` of that kind.

    Notes:
        In layer 0 nobody needs the gradient of what comes before the first adapter.
    """
    products = {target.product for target in targets_of(model, is_moe)}
    first = next((at for at, names in enumerate(_ORDER) if products.intersection(names)), -1)
    idle = {name for names in _ORDER[: first + 1] for name in names}
    ops = [
        op._replace(count=op.count * (1.0 - 1.0 / n_alike)) if op.phase == "B" and _is_base(op, idle) else op
        for op in table.ops
    ]
    return KernelTable(tuple(ops))


def _is_base(op: Kernel, idle: set[str]) -> bool:
    """A kernel of the frozen model among those without a use; the backward of an adapter is kept."""
    return op.name in idle or op.name.removesuffix(" dequantise").removesuffix("_cast") in idle

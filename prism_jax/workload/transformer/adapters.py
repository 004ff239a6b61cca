"""Adapters of a layer: their matrices, parameters, kernels, communication, saved tensors, and gradients that nobody needs.

The products of both matrices of an adapter run forward, and each has an input gradient (B) and a weight gradient (W), in 16 bits
whatever the plan's dtype. Eager PEFT scales the result and adds it in passes of their own. Under tensor parallelism the narrow
side travels: that of a column-parallel matrix is gathered, that of a row-parallel one summed (NeMo, `ParallelLinearAdapter`).
Moving the result of a row-parallel adapter to where the layer's own is, which NeMo does next, is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ...core.errors import SpecError
from ...plan.plan import ParallelPlan
from ..base.kernels import ROUTED, Kernel, KernelTable, stream
from ..base.workload import Comm, SavedTensor
from .op_lists import expert_tokens
from .shard import Shard, gemm
from .sizes import ALIASES, FUSED, GROUPS, TransformerSizes

COLUMN, ROW, WHOLE = "column", "row", "whole"  # dimension of the matrix that tensor parallelism splits


class AdapterTarget(NamedTuple):
    """One frozen matrix with an adapter, or a fused group of them that shares one A.

    Attributes:
        name: of the module.
        product: kernel of the frozen matrix (`ops`).
        n_in, n_out: widths before any split.
        split: dimension that tensor parallelism splits: column | row | whole (nothing).
        n_copies: matrices of these widths: routed experts have one each.
    """

    name: str
    product: str
    n_in: int
    n_out: int
    split: str = COLUMN
    n_copies: int = 1

    def params(self, rank: int) -> int:
        """Returns the number of parameters of its adapters."""
        return self.n_copies * rank * (self.n_in + self.n_out)


def targets_of(model: TransformerSizes, is_moe: bool) -> tuple[AdapterTarget, ...]:
    """Adapters of a layer, with experts or without; empty for a model that is trained in full."""
    if model.adapters is None or not model.adapters.rank:
        return ()
    known = _matrices(model, is_moe)
    found: dict[tuple[str, str], AdapterTarget] = {}
    for name in model.adapters.targets:
        for own in _expanded(name, known):
            found[own.name, own.product] = own
    return tuple(found.values())


def check_adapters(model: TransformerSizes) -> None:
    """Raises:
    SpecError: a target that no layer has, or modules that adapters are not modelled for.
    """
    if model.adapters is None:
        return
    if model.n_mtp:
        raise SpecError(
            f"model {model.name}: adapters go with n_mtp = 0, not {model.n_mtp}: multi-token prediction is not fine-tuned."
        )
    known = [
        own for is_moe in {model.is_moe_layer(n) for n in range(model.n_layers)} for own in _matrices(model, is_moe)
    ]
    for name in model.adapters.targets:
        if not _expanded(name, known):
            has = ", ".join(dict.fromkeys(own.name for own in known))
            raise SpecError(f"model {model.name}: adapters: no layer has target {name!r}. It has {has}.")


def adapter_params(model: TransformerSizes, is_moe: bool) -> tuple[int, int]:
    """Returns (parameters of adapters next to dense matrices, next to routed experts) of one layer, all ranks together."""
    rank = model.adapters.rank if model.adapters is not None else 0
    own = targets_of(model, is_moe)
    on_experts = sum(each.params(rank) for each in own if is_on_experts(each))
    return sum(each.params(rank) for each in own) - on_experts, on_experts


def is_on_experts(target: AdapterTarget) -> bool:
    """Whether it belongs to the routed experts."""
    return target.product.startswith("experts")


def _expanded(name: str, known: list[AdapterTarget]) -> list[AdapterTarget]:
    """The matrices that a name stands for; several with one A where it names a fused module."""
    name = ALIASES.get(name, name)
    if name not in FUSED:
        return [own for own in known if own.name in GROUPS.get(name, (name,))]
    by_product: dict[str, AdapterTarget] = {}
    for own in known:
        if own.name in FUSED[name]:
            before = by_product.get(own.product, own._replace(name=name, n_out=0))
            by_product[own.product] = before._replace(n_out=before.n_out + own.n_out)
    return list(by_product.values())


def _matrices(model: TransformerSizes, is_moe: bool) -> list[AdapterTarget]:
    """All matrices of a layer that can have an adapter."""
    out = AdapterTarget("o_proj", "attention_out", model.attention_out_dim, model.hidden, ROW)
    return [*_attention(model), out, *_mlps(model, is_moe)]


def _attention(model: TransformerSizes) -> list[AdapterTarget]:
    if model.mla is None:
        widths = {"q_proj": model.query_width, "k_proj": model.kv_dim, "v_proj": model.kv_dim}
        return [AdapterTarget(name, "qkv", model.hidden, width) for name, width in widths.items()]
    mla = model.mla
    up = model.n_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    found = [
        AdapterTarget("kv_a_proj_with_mqa", "kv_down", model.hidden, mla.kv_lora_rank + mla.qk_rope_head_dim, WHOLE),
        AdapterTarget("kv_b_proj", "kv_up", mla.kv_lora_rank, up),
    ]
    if not mla.q_lora_rank:
        return [AdapterTarget("q_proj", "q", model.hidden, model.q_dim), *found]
    q_down = AdapterTarget("q_a_proj", "q_down", model.hidden, mla.q_lora_rank, WHOLE)
    return [q_down, AdapterTarget("q_b_proj", "q_up", mla.q_lora_rank, model.q_dim), *found]


def _mlps(model: TransformerSizes, is_moe: bool) -> list[AdapterTarget]:
    if not is_moe or model.moe is None:
        return _mlp(model, "mlp", model.ffn_hidden)
    moe = model.moe
    shared = _mlp(model, "shared", moe.shared_width) if moe.shared_width else []
    return _mlp(model, "experts", moe.ffn_hidden, moe.n_experts, moe.latent) + shared


def _mlp(model: TransformerSizes, prefix: str, width: int, n_copies: int = 1, outer: int = 0) -> list[AdapterTarget]:
    outer = outer or model.hidden
    names = ("gate_proj", "up_proj") if model.gated else ("up_proj",)
    inward = [AdapterTarget(name, f"{prefix}_in", outer, width, COLUMN, n_copies) for name in names]
    return [*inward, AdapterTarget("down_proj", f"{prefix}_out", width, outer, ROW, n_copies)]


# Compute in the order of a layer; what stands before the first adapter of layer 0 needs no gradient.
_ORDER = (
    ("qkv", "q", "q_down", "q_up", "kv_down", "kv_up"),
    ("flash", "scores", "softmax", "attention_dropout", "values", "rope", "qk_norm", "latent_norms", "assemble_kv"),
    ("attention_out",),
    ("router", "permute", "mlp_in", "experts_in", "shared_in"),
    ("mlp_act", "experts_act", "shared_act"),
    ("mlp_out", "experts_out", "shared_out"),
)


# Kernels of adapters are listed one by one, those of a layer stand for about two launches each (casts, copies, bias;
# `host_launch_s` of cost/presets/efficiency.toml), so that with the same share adapters count about twice.
_HOST_SHARE = 0.5


def adapter_ops(model: TransformerSizes, plan: ParallelPlan, shard: Shard, is_moe: bool) -> list[Kernel]:
    """Returns the kernels of all adapters of a layer, each named by its main product, a blank and its own name."""
    own = replace(shard.in_16_bits, trains=True)
    ops = [op for target in targets_of(model, is_moe) for op in _of_target(model, plan, own, target)]
    ops = [op._replace(host_share=op.host_share * _HOST_SHARE) for op in ops]
    return [op._replace(dtype="bf16") if op.kernel == "gemm" else op for op in ops]


def product_of(name: str) -> str:
    """Name of the product that a kernel belongs to."""
    return name.partition(" ")[0]


def _of_target(model: TransformerSizes, plan: ParallelPlan, shard: Shard, target: AdapterTarget) -> list[Kernel]:
    assert model.adapters is not None
    rows, batch = _rows(model, plan, shard, target)
    n_in, n_out, rank = _widths(target, model.adapters.rank, _ranks(plan, target))
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
    return [op._replace(knob=ROUTED) for op in ops] if is_on_experts(target) else ops


def _rows(model: TransformerSizes, plan: ParallelPlan, shard: Shard, target: AdapterTarget) -> tuple[float, float]:
    """(tokens, matrices) that one device works on."""
    if is_on_experts(target):
        n_local = target.n_copies / plan.ep
        return expert_tokens(model, plan, shard) / n_local, n_local
    return (shard.local_tokens if target.split == WHOLE else shard.tokens), 1.0


def _ranks(plan: ParallelPlan, target: AdapterTarget) -> int:
    """Ranks that its matrix is split over."""
    return plan.expert_tp if is_on_experts(target) else plan.tp


def _widths(target: AdapterTarget, rank: int, tp: int) -> tuple[float, float, float]:
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
        if target.split == WHOLE or _ranks(plan, target) == 1:
            continue
        rows, batch = _rows(model, plan, shard, target)
        kind = "all_gather" if target.split == COLUMN else "all_reduce"
        n_bytes = shard.element_bytes * rows * batch * model.adapters.rank
        comm = Comm("tp", kind, "F", n_bytes, plan.stride("tp"), _ranks(plan, target))
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
        n_in, _, _ = _widths(target, model.adapters.rank, _ranks(plan, target))
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

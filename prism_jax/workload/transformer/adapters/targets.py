"""Which matrices of a layer have adapters, with their widths; counts of their parameters."""

from __future__ import annotations

from typing import NamedTuple

from ....errors import SpecError
from ..adapter_spec import ALIASES, FUSED, GROUPS
from ..sizes import TransformerSizes

COLUMN, ROW, WHOLE = "column", "row", "whole"  # dimension of the matrix that tensor parallelism splits


class Target(NamedTuple):
    """One frozen matrix with an adapter, or a fused group of them that shares one A.

    Attributes:
        name: of the module.
        product: kernel of the frozen matrix (`ops`).
        n_in, n_out: widths before any split.
        split: what tensor parallelism splits: column | row | whole (nothing).
        n_copies: matrices of these widths: routed experts have one each.
    """

    name: str
    product: str
    n_in: int
    n_out: int
    split: str = COLUMN
    n_copies: int = 1

    def params(self, rank: int) -> int:
        """Parameters of its adapters."""
        return self.n_copies * rank * (self.n_in + self.n_out)


def targets_of(model: TransformerSizes, is_moe: bool) -> tuple[Target, ...]:
    """Adapters of a layer, with experts or without; empty for a model that is trained in full."""
    if model.adapters is None or not model.adapters.rank:
        return ()
    known = _matrices(model, is_moe)
    found: dict[tuple[str, str], Target] = {}
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
    """(parameters of adapters beside dense matrices, beside routed experts) of one layer, all ranks together."""
    rank = model.adapters.rank if model.adapters is not None else 0
    own = targets_of(model, is_moe)
    on_experts = sum(each.params(rank) for each in own if is_on_experts(each))
    return sum(each.params(rank) for each in own) - on_experts, on_experts


def is_on_experts(target: Target) -> bool:
    """Whether it belongs to the routed experts."""
    return target.product.startswith("experts")


def _expanded(name: str, known: list[Target]) -> list[Target]:
    """The matrices that a name stands for; several with one A where it names a fused module."""
    name = ALIASES.get(name, name)
    if name not in FUSED:
        return [own for own in known if own.name in GROUPS.get(name, (name,))]
    by_product: dict[str, Target] = {}
    for own in known:
        if own.name in FUSED[name]:
            before = by_product.get(own.product, own._replace(name=name, n_out=0))
            by_product[own.product] = before._replace(n_out=before.n_out + own.n_out)
    return list(by_product.values())


def _matrices(model: TransformerSizes, is_moe: bool) -> list[Target]:
    """All matrices of a layer that can have an adapter."""
    out = Target("o_proj", "attention_out", model.attention_out_dim, model.hidden, ROW)
    return [*_attention(model), out, *_mlps(model, is_moe)]


def _attention(model: TransformerSizes) -> list[Target]:
    if model.mla is None:
        widths = {"q_proj": model.q_dim, "k_proj": model.kv_dim, "v_proj": model.kv_dim}
        return [Target(name, "qkv", model.hidden, width) for name, width in widths.items()]
    mla = model.mla
    up = model.n_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    found = [
        Target("kv_a_proj_with_mqa", "kv_down", model.hidden, mla.kv_lora_rank + mla.qk_rope_head_dim, WHOLE),
        Target("kv_b_proj", "kv_up", mla.kv_lora_rank, up),
    ]
    if not mla.q_lora_rank:
        return [Target("q_proj", "q", model.hidden, model.q_dim), *found]
    q_down = Target("q_a_proj", "q_down", model.hidden, mla.q_lora_rank, WHOLE)
    return [q_down, Target("q_b_proj", "q_up", mla.q_lora_rank, model.q_dim), *found]


def _mlps(model: TransformerSizes, is_moe: bool) -> list[Target]:
    if not is_moe or model.moe is None:
        return _mlp(model, "mlp", model.ffn_hidden)
    moe = model.moe
    shared = _mlp(model, "shared", moe.shared_width) if moe.shared_width else []
    return _mlp(model, "experts", moe.ffn_hidden, moe.n_experts) + shared


def _mlp(model: TransformerSizes, prefix: str, width: int, n_copies: int = 1) -> list[Target]:
    names = ("gate_proj", "up_proj") if model.gated else ("up_proj",)
    inward = [Target(name, f"{prefix}_in", model.hidden, width, COLUMN, n_copies) for name in names]
    return [*inward, Target("down_proj", f"{prefix}_out", width, model.hidden, ROW, n_copies)]

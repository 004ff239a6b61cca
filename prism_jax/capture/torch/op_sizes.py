"""Kind, sizes, FLOPs and bytes of an ATen operation, from the tensors it was called with.

Matrix products count 2 FLOPs per multiply-add. Fused attention counts the products of its forward pass over the keys that a query
sees, and twice that in the backward pass: recomputed scores are part of the kernel's efficiency, as in our own op lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from ...workload.captured.program import CapturedOp

# pyright: reportMissingImports=false


DTYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "int8",
    torch.bool: "bool",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
}
LOOKUPS = ("index", "index_select", "gather")  # read what they return, not the whole of their input
OVERWRITE = ("copy_",)  # what they write to is not read
FILLS = (
    *("zeros", "zeros_like", "new_zeros", "zero_", "ones", "ones_like", "new_ones"),
    *("full", "full_like", "new_full", "fill_"),
)  # read nothing
# Argument of which one element per row is read at most.
UNREAD = {"nll_loss_forward": 0, "nll_loss_backward": 1}
Sizes = tuple[int, int, int, int]  # (batch, m, n, k)

# Reductions and norms, which a compiler merges with pointwise neighbours; pointwise operations are tagged as such by torch.
REDUCTIONS = frozenset({
    "sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "std", "_softmax", "_softmax_backward_data",
    "_log_softmax", "_log_softmax_backward_data", "native_layer_norm", "native_layer_norm_backward",
    "_fused_rms_norm", "_fused_rms_norm_backward", "nll_loss_forward", "nll_loss_backward", "native_dropout",
    "native_dropout_backward", "gelu_backward", "silu_backward", "threshold_backward", "_to_copy", "copy_", "clone",
    "native_group_norm", "native_group_norm_backward", "logsumexp", "linalg_vector_norm", "cumsum",
})  # fmt: skip
_FREE = frozenset({
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "_reshape_alias",
    "detach", "alias", "lift_fresh", "lift_fresh_copy", "set_", "resize_", "resize_as_", "item",
    "_local_scalar_dense", "is_same_size", "sym_size", "record_stream", "_has_same_storage_numel", "scalar_tensor",
    "_assert_async", "device",
})  # fmt: skip


def op_rows(func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> list[CapturedOp]:
    """Rows of one operation, with phase F and no module: none for a view, two for the backward pass of a convolution."""
    name = func.overloadpacket.__name__
    if func.is_view or name in _FREE:
        return []
    written = unique(tensors(out)) or mutated(func, args, kwargs)
    read = read_tensors(name, args, kwargs)
    if not written:
        return []
    read_bytes, write_bytes = sum(map(stored_bytes, read)), sum(map(stored_bytes, written))
    title, dtype = f"{func.namespace}::{name}", dtype_of(read or written)
    if name == "convolution_backward":
        return _convolution_backward(args, title, dtype, read_bytes + write_bytes)
    both = {"n_bytes": read_bytes + write_bytes, "output_bytes": write_bytes}
    if name in PRODUCTS:
        sizes = PRODUCTS[name](args, out)
        return [CapturedOp(title, "gemm", "F", _run_in(dtype, "gemm"), sizes, 2.0 * prod(sizes), **both)]
    if name in ("convolution", "cudnn_convolution", "mkldnn_convolution"):
        sizes = _convolution(args[0], args[1], out, bool(args[6]) if len(args) > 6 else False, args[-1])
        return [CapturedOp(title, "conv", "F", _run_in(dtype, "conv"), sizes, 2.0 * prod(sizes), **both)]
    if "scaled_dot_product" in name or name in ("_flash_attention_forward", "_flash_attention_backward"):
        return [_attention(name, title, dtype, args, kwargs, func, both)]
    if (part := _partly(name, args, out, both["n_bytes"])) is not None:
        both = {
            "n_bytes": part,
            "output_bytes": min(write_bytes, part / 3.0 if is_added_in_place(name, args) else part),
        }
    kind = "embedding" if name.startswith(("embedding", "_embedding_bag")) else "memory"
    if kind == "embedding" or name in LOOKUPS:
        both = _lookup_bytes(name, args, written)
    fusible = kind == "memory" and (torch.Tag.pointwise in func.tags or name in REDUCTIONS)
    return [CapturedOp(title, kind, "F", dtype, tuple(written[0].shape)[-16:], fusible=fusible, **both)]


def _partly(name: str, args: Sequence[Any], out: Any, n_bytes: float) -> float | None:
    """Bytes of operations that touch only a part of their arguments; None: all others."""
    if name in UNREAD:
        return n_bytes - stored_bytes(args[UNREAD[name]])
    if name == "all_gather_copy_in":  # of the buffer of all ranks, its own part
        return 2.0 * stored_bytes(out[0])
    if is_added_in_place(name, args):  # rows read, added and written
        return 3.0 * stored_bytes(added(name, args))
    return None


def is_added_in_place(name: str, args: Sequence[Any]) -> bool:
    """Whether rows are added into a tensor of which the rest stays; autograd's gradient of indexing is, too, on a GPU."""
    return name == "index_add_" or (name.lstrip("_").startswith("index_put") and args[3:4] == (True,))


def added(name: str, args: Sequence[Any]) -> Tensor:
    """The rows that are added."""
    return args[3] if name == "index_add_" else args[2]


def read_tensors(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """Tensors that an operation reads."""
    if name in FILLS:
        return []
    return unique(tensors((args[1:] if name in OVERWRITE else args, {k: v for k, v in kwargs.items() if k != "out"})))


def attention_row(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, backward: bool) -> CapturedOp:
    """Fused attention of queries [..., head, q, d] with keys and values of as many heads or fewer."""
    *lead, n_q, d_qk = q.shape
    n_kv, d_v = k.shape[-2], v.shape[-1]
    heads = prod(lead)
    flops = attention_flops(heads, n_q, n_kv, d_qk + d_v, causal=causal) * (2.0 if backward else 1.0)
    read, written = stored_bytes(q) + stored_bytes(k) + stored_bytes(v), heads * n_q * d_v * q.element_size()
    if backward:
        read, written = read + 2.0 * written, read
    title = "aten::_scaled_dot_product_flash_attention" + ("_backward" if backward else "")
    shape = (heads, n_q, n_kv, d_qk, d_v)
    sizes = {"n_bytes": read + written, "output_bytes": written}
    return CapturedOp(title, "attention", "B" if backward else "F", dtype_of([q]), shape, flops, causal=causal, **sizes)


def attention_flops(heads: int, n_q: int, n_kv: int, widths: int, *, causal: bool) -> float:
    """Forward FLOPs; `widths` is the sum of those of keys and values. A causal query sees itself and all before it."""
    seen = n_kv - (n_q - 1) / 2.0 if causal and n_kv >= n_q else float(n_kv)
    return 2.0 * heads * n_q * seen * widths


def _attention(
    name: str, title: str, dtype: str, args: Sequence[Any], kwargs: dict[str, Any], func: Any, both: dict[str, float]
) -> CapturedOp:
    backward = "backward" in name
    q, k, v = args[1:4] if backward else args[:3]
    names = [item.name for item in func._schema.arguments]
    bound = {**dict(zip(names, args, strict=False)), **kwargs}
    made = attention_row(q, k, v, causal=bool(bound.get("is_causal", False)), backward=backward)
    return CapturedOp(title, "attention", "F", dtype, made.shape, made.flops, causal=made.causal, **both)


def _mm(args: Sequence[Any], out: Any, at: int = 0) -> Sizes:
    return 1, args[at].shape[0], args[at + 1].shape[1], args[at].shape[1]


def _bmm(args: Sequence[Any], out: Any, at: int = 0) -> Sizes:
    return args[at].shape[0], args[at].shape[1], args[at + 1].shape[2], args[at].shape[2]


def _mv(args: Sequence[Any], out: Any) -> Sizes:
    return 1, args[0].shape[0], 1, args[0].shape[1]


def _linear(args: Sequence[Any], out: Any) -> Sizes:
    n, k = args[1].shape
    return 1, args[0].numel() // max(k, 1), n, k


def _grouped(args: Sequence[Any], out: Any) -> Sizes:
    """Products of experts of unequal loads, which are taken as equal: offsets are data."""
    a, b = args[0], args[1]
    if a.dim() == 2 and b.dim() == 3:
        return b.shape[0], a.shape[0] // b.shape[0], b.shape[2], a.shape[1]
    if a.dim() == 2 and b.dim() == 2:
        return out.shape[0], a.shape[0], b.shape[1], a.shape[1] // out.shape[0]
    if b.dim() == 2:
        return a.shape[0], a.shape[1], b.shape[1] // a.shape[0], a.shape[2]
    return _bmm(args, out)


PRODUCTS: dict[str, Callable[[Sequence[Any], Any], Sizes]] = {
    "mm": _mm,
    "_scaled_mm": _mm,
    "_int_mm": _mm,
    "addmm": lambda args, out: _mm(args, out, 1),
    "bmm": _bmm,
    "baddbmm": lambda args, out: _bmm(args, out, 1),
    "mv": _mv,
    "linear": _linear,
    "_grouped_mm": _grouped,
    "_scaled_grouped_mm": _grouped,
}


def _convolution(x: Tensor, weight: Tensor, out: Tensor, transposed: bool, groups: int) -> Sizes:
    """The implicit product: positions of the output (of the input where transposed) times a filter."""
    groups = groups if isinstance(groups, int) else 1
    wide = x if transposed else out
    positions = wide.shape[0] * prod(wide.shape[2:])
    filter_size = prod(weight.shape[2:])
    if transposed:
        return groups, positions, weight.shape[1] * filter_size, weight.shape[0] // groups
    return groups, positions, weight.shape[0] // groups, weight.shape[1] * filter_size


def _convolution_backward(args: Sequence[Any], title: str, dtype: str, n_bytes: float) -> list[CapturedOp]:
    """Gradients of the input (phase B) and of the weights (phase W), as many multiply-adds each as the forward pass."""
    grad, x, weight, transposed, groups, mask = args[0], args[1], args[2], bool(args[7]), args[9], args[10]
    batch, m, n, k = _convolution(x, weight, grad, transposed, groups)
    made, dtype = [], _run_in(dtype, "conv")
    for is_asked, phase, sizes in ((mask[0], "B", (batch, m, k, n)), (mask[1], "W", (batch, k, n, m))):
        if is_asked:
            written = stored_bytes(x if phase == "B" else weight)
            moved = stored_bytes(grad) + stored_bytes(weight) + stored_bytes(x)
            both = {"n_bytes": moved, "output_bytes": written}
            made.append(CapturedOp(title, "conv", phase, dtype, sizes, 2.0 * prod(sizes), **both))
    return made


def _lookup_bytes(name: str, args: Sequence[Any], written: Sequence[Tensor]) -> dict[str, float]:
    """A lookup reads the rows it asks for, not the table; its gradient writes the table."""
    out = float(sum(map(stored_bytes, written)))
    tables = list(tensors(args))
    if "backward" in name:
        return {"n_bytes": sum(map(stored_bytes, tables[:2])) + out, "output_bytes": out}
    return {"n_bytes": 2.0 * out + sum(map(stored_bytes, tables[1:])), "output_bytes": out}


def _run_in(dtype: str, kind: str) -> str:
    """Products run in TF32 where it is switched on, convolutions unless it is switched off."""
    is_high = torch.get_float32_matmul_precision() != "highest" if kind == "gemm" else torch.backends.cudnn.allow_tf32
    return "tf32" if dtype == "fp32" and is_high else dtype


def tensors(value: Any) -> Iterable[Tensor]:
    """All tensors in nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


def mutated(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """Arguments that an operation writes to."""
    found: list[Tensor] = []
    for at, item in enumerate(func._schema.arguments):
        if item.alias_info is not None and item.alias_info.is_write:
            found += tensors(kwargs.get(item.name, args[at] if at < len(args) else None))
    return unique(found)


def unique(found: Iterable[Tensor]) -> list[Tensor]:
    """Yields each tensor once."""
    return list({id(one): one for one in found}.values())


def stored_bytes(tensor: Tensor) -> float:
    """Bytes that a kernel moves for it: expanded dimensions are there once."""
    n = prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return float(n * tensor.element_size())


def dtype_of(found: Sequence[Tensor]) -> str:
    """Returns the dtype of the first floating tensor, else of the first one."""
    for one in found:
        if one.dtype.is_floating_point:
            return DTYPES.get(one.dtype, "fp8")
    return DTYPES.get(found[0].dtype, "int64") if found else "fp32"

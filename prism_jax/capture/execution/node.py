"""Defines `Node` and `Tensor`, a node of an execution trace, the same for all versions, and what operators do, by name.

Work is products, convolutions, attention, lookups, memory traffic, or nothing. Only names are looked at. An operator that calls
others (aten::linear, which calls aten::addmm) has the kind of its work all the same: which of them runs it is decided by the tree
(`ops.py`).

Versions: 1.0.0 and 1.0.1 keep everything flat (`inputs`, `input_shapes`, `parent`); since 1.0.2-chakra inputs and outputs are
objects of `values`, `shapes` and `types`, the parent is called `ctrl_deps`, and the rest is in `attrs`, a list of {name, type,
value} or an object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from ...core.errors import DataError
from ...tables.document import short

HOST = "host"  # no operator, or one that never has a kernel of its own
PRODUCTS = (
    "mm", "addmm", "bmm", "baddbmm", "linear", "_addmm_activation", "_scaled_mm", "_grouped_mm", "_scaled_grouped_mm", "mv",
    "addmv",
)  # fmt: skip
CONVOLUTIONS = (
    "convolution", "_convolution", "cudnn_convolution", "cudnn_convolution_relu", "cudnn_convolution_add_relu",
    "conv_depthwise3d", "miopen_convolution", "mkldnn_convolution", "_slow_conv2d_forward", "_conv_depthwise2d",
    "cudnn_convolution_transpose", "slow_conv3d_forward", "slow_conv_dilated2d", "slow_conv_transpose2d",
    "convolution_overrideable", "miopen_depthwise_convolution", "miopen_convolution_transpose", "thnn_conv2d",
)  # fmt: skip
CONVOLUTIONS_BACK = (
    "convolution_backward", "convolution_backward_overrideable", "cudnn_convolution_backward",
    "cudnn_convolution_backward_input", "cudnn_convolution_backward_weight", "_slow_conv2d_backward",
    "mkldnn_convolution_backward",
)  # fmt: skip
ATTENTION = (
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_flash_attention_for_cpu",
    "_flash_attention_forward", "_efficient_attention_forward", "_cudnn_attention_forward", "_flash_attn_forward",
    "_flash_attn_varlen_forward",
)  # fmt: skip
ATTENTION_BACK = (
    "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward", "_scaled_dot_product_fused_attention_overrideable_backward",
    "_scaled_dot_product_flash_attention_for_cpu_backward", "_flash_attention_backward", "_efficient_attention_backward",
    "_cudnn_attention_backward", "_flash_attn_backward", "_flash_attn_varlen_backward",
)  # fmt: skip
VIEWS = (
    "view", "as_strided", "as_strided_", "reshape", "_reshape_alias", "transpose", "transpose_", "t", "t_", "permute",
    "expand", "expand_as", "slice", "narrow", "select", "squeeze", "squeeze_", "unsqueeze", "unsqueeze_", "flatten",
    "unflatten", "detach", "detach_", "alias", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
    "result_type", "to", "_to_copy", "contiguous", "lift_fresh", "is_pinned", "record_stream", "set_", "set_data",
    "resize_", "resize_as_", "split", "split_with_sizes", "tensor_split", "chunk", "unbind", "resolve_conj", "resolve_neg",
    "view_as", "view_as_real", "view_as_complex", "real", "imag", "diagonal", "movedim", "unfold", "_unsafe_view",
    "broadcast_to", "broadcast_tensors", "requires_grad_", "output_nr", "is_same_size", "size", "stride", "dim", "numel",
    "is_floating_point", "is_complex", "is_nonzero", "item", "pin_memory", "_pin_memory", "can_cast", "promote_types",
    "_has_compatible_shallow_copy_type", "swapaxes", "swapdims", "mT", "numpy_T", "T", "type_as", "data", "_version",
    "retain_grad", "retains_grad", "is_leaf", "_use_cudnn_ctc_loss", "_nested_tensor_size", "_conj", "_neg_view",
    "_fused_sdp_choice", "_debug_has_internal_overlap", "_assert_async", "sym_size", "sym_stride", "sym_numel",
    "_cudnn_init_dropout_state",
)  # fmt: skip
# What stands in their first input is not read.
WRITES = (
    "copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "exponential_", "bernoulli_", "trunc_normal_",
    "_foreach_zero_", "_foreach_copy_",
)  # fmt: skip
# They read no more of a large input than they hand on.
GATHERS = (
    "index", "gather", "index_select", "take", "take_along_dim", "_index_put_impl_", "index_put_", "index_add_", "scatter",
    "scatter_", "scatter_add", "scatter_add_", "masked_select", "embedding", "slice_backward", "select_backward",
)  # fmt: skip
NOT_FUSED = (
    *GATHERS, "cat", "stack", "sort", "topk", "unique", "_unique2", "nonzero", "multinomial", "cumsum",
    "_local_scalar_dense", "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "cudnn_batch_norm",
    "cudnn_batch_norm_backward", "miopen_batch_norm", "miopen_batch_norm_backward", "native_batch_norm",
    "native_batch_norm_backward", "_ctc_loss", "_cudnn_rnn", "roll", "flip",
)  # fmt: skip
_SYSTEM = (
    "autograd::", "torch::autograd", "torch::jit", "c10d::", "_c10d_functional", "profiler::", "inductor::",
    "torch.distributed",
)  # fmt: skip
_KINDS = {
    **dict.fromkeys(VIEWS, "none"),
    **dict.fromkeys(PRODUCTS, "gemm"),
    **dict.fromkeys((*CONVOLUTIONS, *CONVOLUTIONS_BACK), "conv"),
    **dict.fromkeys((*ATTENTION, *ATTENTION_BACK), "attention"),
}


def own_name(name: str) -> str:
    """Returns the part of a name behind its last colons: mm of aten::mm."""
    return name.rpartition("::")[2]


def kind_of(name: str, backend: str = "") -> str:
    """One of `OP_KINDS`, or `HOST`.

    Args:
        backend: generator of its kernel (triton); empty for operators.
    """
    if backend or name.startswith("triton_"):
        return "memory"
    if "::" not in name or name.startswith(_SYSTEM):
        return "none" if name in ("detach", "detach_") else HOST
    own = own_name(name)
    if own in _KINDS:
        return _KINDS[own]
    return "embedding" if "embedding" in own else "memory"


def is_fusible(name: str, backend: str = "") -> bool:
    """Whether it is pointwise or a reduction, which compilers merge with its neighbours."""
    return name.startswith("aten::") and not backend and own_name(name) not in NOT_FUSED


MOST_SIZE = 2**48  # of a dimension or a number of elements
MOST_NUMBER = 2**64
MOST_SIZES = 64  # dimensions
MOST_NAME = 1000
MOST_VALUES = 200_000  # of the inputs or outputs of a node
UNDEFINED = "nullptr"  # in the type of a tensor that is none
_COLLECTIVE = "record_param_comms"
_NO_ATTRS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TraceTensor:
    """A tensor of a node.

    Attributes:
        number, storage: of the tensor and of the memory that it is in, as the trace counts them.
        n_elements: of the tensor.
        item_bytes: of an element.
        device: cuda:0, cpu; empty where the trace does not say.
        shape: sizes.
        dtype: as the trace spells it: float, c10::BFloat16.
    """

    number: int
    storage: int
    n_elements: int
    item_bytes: int
    device: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def n_bytes(self) -> float:
        """Bytes of all elements of the shape."""
        n = 1.0
        for size in self.shape:
            n *= size
        return n * self.item_bytes


Value: TypeAlias = "TraceTensor | int | float | bool | str | tuple[Value, ...] | None"


@dataclass(frozen=True, slots=True)
class Node:
    """A node: an operator of PyTorch, or an annotation of the program.

    Attributes:
        id, parent: numbers; the root is its own parent.
        rf_id: when it began, in the order of all threads; 0 for threads and processes.
        thread: in which it ran, numbered by the trace.
        inputs, outputs: in their order.
        attrs: of collectives: what newer versions say of them in words.
    """

    id: int
    parent: int
    name: str
    rf_id: int
    thread: int
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    schema: str = ""
    backend: str = ""
    attrs: Mapping[str, Any] = field(default_factory=lambda: _NO_ATTRS)

    @property
    def tensors_in(self) -> Iterator[TraceTensor]:
        """Tensors among its inputs, those in lists included."""
        return tensors(self.inputs)

    @property
    def tensors_out(self) -> Iterator[TraceTensor]:
        """Tensors among the outputs."""
        return tensors(self.outputs)


def tensors(values: tuple[Value, ...]) -> Iterator[TraceTensor]:
    """The tensors among values, those in lists included, in order."""
    for value in values:
        if isinstance(value, TraceTensor):
            yield value
        elif isinstance(value, tuple):
            yield from tensors(value)


def node_of(raw: object, place: str) -> Node:
    """The node that a JSON object describes.

    Args:
        place: of the object, for messages.

    Raises:
        DataError: a field is missing or no trace contains its value; names it.
    """
    if not isinstance(raw, dict):
        raise DataError(f"{place}: {short(raw)} is no node of an execution trace")
    attrs = _attrs(raw, place)
    name = raw.get("name")
    if not isinstance(name, str):
        raise DataError(f"{place} name: {short(name)} is not a text")
    return Node(
        _number(raw, "id", place),
        _parent(raw, place),
        name[:MOST_NAME],
        _number(attrs, "rf_id", place, 0),
        _number(attrs, "tid", place, 0),
        _values(raw, "input", place),
        _values(raw, "output", place),
        str(attrs.get("op_schema") or "")[:MOST_NAME],
        str(attrs.get("kernel_backend") or "")[:MOST_NAME],
        {key: attrs[key] for key in attrs if not isinstance(attrs[key], (list, dict))}
        if name == _COLLECTIVE
        else _NO_ATTRS,
    )


def _attrs(raw: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Returns the fields that newer versions keep in `attrs` and older ones next to the name."""
    found = raw.get("attrs", raw.get("attr"))
    if found is None or isinstance(found, dict):
        return found or raw
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise DataError(f"{place} attrs: {short(found)} is neither an object nor a list of objects")
    return {str(one.get("name")): one.get("value") for one in found}


def _number(raw: Mapping[str, Any], name: str, place: str, default: int | None = None) -> int:
    value = raw.get(name, default)
    if type(value) is not int or not -1 <= value < MOST_NUMBER:
        raise DataError(f"{place} {name}: {short(value)} is not a whole number of 64 bits")
    return value


def _parent(raw: Mapping[str, Any], place: str) -> int:
    name = next((known for known in ("parent", "ctrl_deps") if known in raw), None)
    if name is None:
        raise DataError(f"{place}: neither `parent` nor `ctrl_deps`: no node of an execution trace")
    value = raw[name]
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return _number({name: value}, name, place)


def _values(raw: Mapping[str, Any], side: str, place: str) -> tuple[Value, ...]:
    """Returns the tensor descriptions and values listed under `side` ('input' or 'output')."""
    field = f"{side}s"
    found = raw.get(field)
    if isinstance(found, dict):
        values, shapes, types = (found.get(name, []) for name in ("values", "shapes", "types"))
    else:
        values, shapes, types = found or [], raw.get(f"{side}_shapes") or [], raw.get(f"{side}_types") or []
    if not (isinstance(values, list) and isinstance(shapes, list) and isinstance(types, list)):
        raise DataError(f"{place} {field}: values, shapes and types must be lists")
    if not len(values) == len(types) == len(shapes):
        raise DataError(f"{place} {field}: {len(values)} values, {len(shapes)} shapes and {len(types)} types")
    if len(values) > MOST_VALUES:
        raise DataError(f"{place} {field}: more than {MOST_VALUES:,}")
    at = f"{place} {field}"
    return tuple(_value(*one, at) for one in zip(values, shapes, types, strict=True))


def _value(value: Any, shape: Any, kind: Any, place: str) -> Value:
    """One value, of its type as the trace writes it."""
    if not isinstance(kind, str):
        raise DataError(f"{place}: a type is {short(kind)}, not a text")
    if kind.startswith("Tensor("):
        return None if UNDEFINED in kind else _tensor(value, shape, kind[7:-1], place)
    if isinstance(value, list):
        inner = kind.partition("[")[2].removesuffix("]")
        kinds = inner.split(",") if inner else []
        if len(kinds) != len(value) or not isinstance(shape, list) or len(shape) != len(value):
            kinds, shape = [""] * len(value), [[]] * len(value)
        if len(value) > MOST_VALUES:
            raise DataError(f"{place}: a list of more than {MOST_VALUES:,}")
        return tuple(_value(*one, place) for one in zip(value, shape, kinds, strict=True))
    if value is None or isinstance(value, (int, float, bool)):
        return value
    return value[: 2**20] if isinstance(value, str) else None


def _tensor(value: Any, shape: Any, dtype: str, place: str) -> TraceTensor:
    if not isinstance(value, list) or not value or len(value) > 8:
        raise DataError(f"{place}: {short(value)} is not a tensor, which has a number, a storage, an offset and sizes")
    numbers = [*value[:5], *(0 for _ in range(5 - len(value)))]
    for one in numbers:
        if type(one) is not int or not -1 <= one < MOST_NUMBER:
            raise DataError(f"{place}: {short(one)} in a tensor is not a whole number of 64 bits")
    if not isinstance(shape, list) or len(shape) > MOST_SIZES:
        raise DataError(f"{place}: {short(shape)} is not the shape of a tensor")
    for size in shape:
        if type(size) is not int or not 0 <= size <= MOST_SIZE:
            raise DataError(f"{place}: size {short(size)} of a tensor is not a whole number from 0 to {MOST_SIZE:,}")
    device = value[5] if len(value) > 5 and isinstance(value[5], str) else ""
    return TraceTensor(numbers[0], numbers[1], numbers[3], numbers[4], device[:40], tuple(shape), dtype[:40])

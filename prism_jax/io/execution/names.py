"""What operators of PyTorch do, by their names: products, convolutions, attention, lookups, memory traffic, or nothing.

Only names are looked at. An operator that calls others (aten::linear, which calls aten::addmm) has the kind of its work all the
same: which of them runs it is decided by the tree (`ops.py`).
"""

from __future__ import annotations

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
    "autograd::",
    "torch::autograd",
    "torch::jit",
    "c10d::",
    "_c10d_functional",
    "profiler::",
    "inductor::",
    "torch.distributed",
)
_KINDS = {
    **dict.fromkeys(VIEWS, "none"),
    **dict.fromkeys(PRODUCTS, "gemm"),
    **dict.fromkeys((*CONVOLUTIONS, *CONVOLUTIONS_BACK), "conv"),
    **dict.fromkeys((*ATTENTION, *ATTENTION_BACK), "attention"),
}


def own_name(name: str) -> str:
    """What stands behind the last colons: mm of aten::mm."""
    return name.rpartition("::")[2]


def kind_of(name: str, backend: str = "") -> str:
    """One of `OP_KINDS`, or `HOST`.

    Args:
        backend: that generated its kernel (triton); empty for operators.
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

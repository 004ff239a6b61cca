"""Recognises fused attention in custom calls, whatever their target, by the shapes of operands and results.

    queries [batch, q, heads, d] or [batch, heads, q, d] or [q, heads, d], or packed [batch, q, 3, heads, d]
    keys    the same with `kv` rows, as many heads or fewer (grouped queries), or packed [batch, kv, 2, heads, d] with values
    result  as the queries, as wide as the values; in the backward pass gradients as the queries, the keys and the values

That is attention where a statistic of the softmax, fp32 [batch, heads, q] or [batch, heads, q, 1], is among results or operands
(cuDNN, Transformer Engine, FlashAttention all keep one for the backward pass), or where the target or the end of the name in
the program says so; a kernel that rotates queries and keys has neither. The statistic also tells which dimension counts heads;
without it, what cuDNN's configuration says, else the smaller one.

FLOPs are those of both products over all pairs of a query and a key, half of them under a causal mask over as many keys as
queries (of other lengths the text does not say where the mask lies); the backward pass runs five products, one of which is done
again; kernels that make only the gradients of queries, or of keys and values, run three or four.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .types import ArrayShape, Computation, Instruction

CUDNN = "__cudnn$fmha"
_NAMED = re.compile(r"attn|attention|fmha|flash|sdpa|splash|\bmha", re.IGNORECASE)
_NAMED_IN_PROGRAM = re.compile(
    r"flash|splash|fmha|fused_attn|fused_attention|sdpa|dot_product_attention|cudnn", re.IGNORECASE
)
_NAMED_BACKWARD = re.compile(r"backward|bwd", re.IGNORECASE)
_MASK_OF_TRANSFORMER_ENGINE = re.compile(r"\battn_mask_type\"?\s{0,3}[=:]\s{0,3}(\d)")
_CAUSAL_MASKS = ("2", "3", "4", "5")  # NVTE_Mask_Type: causal, with padding, and both from the bottom right
_ONE, _TWO = 1.0, 2.5  # products of a pass over those of the forward: two; five, one of them a second time
_ONLY_QUERIES, _ONLY_KEYS = 1.5, 2.0  # scores, their gradient, that of queries; scores, their gradient, two gradients
_MOST_OPERANDS = 64
_LANES = (1, 8, 128)  # how often a statistic stands in its last dimension; Pallas on TPUs fills its registers
_KERNEL_NAME = re.compile(r"\bname\"?\s{0,3}[:=]\s{0,3}\"([^\"]{1,100})\"")
_MOST_CONFIG = 4000  # characters of a configuration in which a name is looked for


class Attention(NamedTuple):
    """One call of fused attention.

    Attributes:
        batch_heads: batch times heads of queries.
        q, kv: rows.
        d, d_v: widths of a head of queries and keys, and of values.
        is_backward, is_causal: as it says.
        flops: of the call.
    """

    batch_heads: int
    q: int
    kv: int
    d: int
    d_v: int
    is_backward: bool
    is_causal: bool
    flops: float


def attention_of(computation: Computation, instruction: Instruction) -> Attention | None:
    """The attention that a custom call is; None where it is something else."""
    makers = [computation.instructions[name] for name in instruction.operands[:_MOST_OPERANDS]]
    operands = [one.shapes[0] for one in makers if one.shapes]
    tensors = list(_unpacked(operands))
    found = _queries_keys_values(tensors)
    if found is None:
        return None
    queries, keys, values = found
    config = instruction.attributes.get("backend_config", "{}")
    statistics = [one.dims for one in (*instruction.shapes, *operands) if one.dtype == "f32"]
    heads, is_told = _heads(queries, statistics, config)
    if not (is_told or _is_named(instruction)) or not _divides(queries, keys, heads):
        return None
    products = _products(instruction, queries, keys, values)
    if products is None:
        return None
    rows = _rows(queries, heads)
    q, kv, d, d_v = queries[rows], keys[rows], queries[-1], values[-1]
    batch_heads = queries[heads] * (queries[0] if len(queries) == 4 else 1)
    is_causal = _says_causal(config) and q == kv
    flops = 2.0 * batch_heads * q * kv * (d + d_v) * products * (0.5 if is_causal else 1.0)
    return Attention(batch_heads, q, kv, d, d_v, products != _ONE, is_causal, flops)


Dims = tuple[int, ...]


def _unpacked(operands: Sequence[ArrayShape]) -> Iterator[Dims]:
    """Tensors of 3 or 4 dimensions, packed ones as their parts; empty ones and those without floating point are left out."""
    for one in operands:
        if not one.is_float or one.n_elements == 0:
            continue
        packed = next((axis for axis in (2, 3) if len(one.dims) == 5 and one.dims[axis] in (2, 3)), None)
        if packed is not None:
            yield from [one.dims[:packed] + one.dims[packed + 1 :]] * one.dims[packed]
        elif len(one.dims) in (3, 4):
            yield one.dims


def _queries_keys_values(tensors: Sequence[Dims]) -> tuple[Dims, Dims, Dims] | None:
    """The first three that can be that; keys serve as values where no others follow."""
    if len(tensors) < 2:
        return None
    queries, keys = tensors[0], tensors[1]
    if len(keys) != len(queries) or keys[-1] != queries[-1] or (len(queries) == 4 and keys[0] != queries[0]):
        return None
    values = tensors[2] if len(tensors) > 2 and tensors[2][:-1] == keys[:-1] else keys
    return queries, keys, values


def _heads(queries: Dims, statistics: Sequence[Dims], config: str) -> tuple[int, bool]:
    """Returns the dimension of the queries that counts heads, and whether a statistic of the softmax says so."""
    first, second = (1, 2) if len(queries) == 4 else (0, 1)
    batch = queries[:1] if len(queries) == 4 else ()
    for heads, rows in ((second, first), (first, second)):
        shape = (*batch, queries[heads], queries[rows])
        if any(one == shape or (one[:-1] == shape and one[-1] in _LANES and one != queries) for one in statistics):
            return heads, True
    if (stated := _heads_of_cudnn(config)) is not None and len(queries) == 4:
        return stated, False
    return (first if queries[first] < queries[second] else second), False


def _heads_of_cudnn(config: str) -> int | None:
    """1 or 2 as the configuration of a call of cuDNN says; None where it does not."""
    try:
        found = json.loads(config).get("cudnn_fmha_backend_config", {}).get("bmm1_dot_dimension_numbers", {})
        batch = [int(one) for one in found.get("lhs_batch_dimensions", ())]
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None
    return None if not batch else 1 if batch == [0, 1] else 2


def _rows(queries: Dims, heads: int) -> int:
    """The dimension that counts queries."""
    return next(axis for axis in ((1, 2) if len(queries) == 4 else (0, 1)) if axis != heads)


def _divides(queries: Dims, keys: Dims, heads: int) -> bool:
    """Whether the heads of keys serve as many heads of queries each."""
    return 0 < keys[heads] <= queries[heads] and queries[heads] % keys[heads] == 0


def _is_named(instruction: Instruction) -> bool:
    own = "/".join(instruction.op_name.rsplit("/", 2)[-2:])
    kernel = _KERNEL_NAME.search(instruction.attributes.get("backend_config", "")[:_MOST_CONFIG])
    names = f"{instruction.target} {kernel[1] if kernel else ''}"
    return bool(_NAMED.search(names) or _NAMED_IN_PROGRAM.search(own))


def _products(instruction: Instruction, queries: Dims, keys: Dims, values: Dims) -> float | None:
    """Products of the call over those of a forward pass; None where its results are no attention."""
    results = list(_unpacked(instruction.shapes))
    own = "/".join((instruction.target, *instruction.op_name.rsplit("/", 2)[-2:]))
    n_query, n_key = results.count(queries), results.count(keys) + (values != keys) * results.count(values)
    if queries == keys:
        is_backward = n_query >= 3 or _NAMED_BACKWARD.search(own) is not None
        n_key = n_query - 1 if n_query >= 3 else n_query if n_query == 2 else 0
        n_query = 0 if n_query == 2 and is_backward else n_query
    else:
        is_backward = n_key >= 2 or _NAMED_BACKWARD.search(own) is not None
    if is_backward:
        return _TWO if n_query and n_key else _ONLY_QUERIES if n_query else _ONLY_KEYS if n_key else None
    out = (*queries[:-1], values[-1])
    return _ONE if out in results and not (n_key and queries != keys) else None


def _says_causal(config: str) -> bool:
    mask = _MASK_OF_TRANSFORMER_ENGINE.search(config)
    return "CAUSAL" in config or (mask is not None and mask[1] in _CAUSAL_MASKS)

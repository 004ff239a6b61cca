"""Reads matrix products and convolutions of HLO (batch, m, n, k; FLOPs), and which pass and layer an instruction belongs to.

JAX leaves names in the metadata: `jit(step)/transpose(jvp(Model))/layers/dot_general` says what differentiation made of a
program. What has neither mark and depends on gradients is the optimizer. `rematted_computation` is forward work that runs again
in the backward pass. Products are dots, convolutions and calls into libraries; FLOPs are multiply-adds times two. Positions of a
convolution that fall on padding or on the holes of a dilated input are not counted, as XLA's own cost analysis does: the
gradients of strided convolutions would cost several times too much.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import gcd, prod

from .types import ArrayShape, Computation, Instruction, Module

AGAIN = ("rematted_computation", ".remat")  # of JAX, of XLA
_TIMELESS = ("constant", "parameter", "iota", "partition-id", "replica-id")
_ORDER = {"F": 0, "B": 1, "opt": 2}
_WRAPS = re.compile(r"^(?:jit|pjit|jvp|transpose|vmap|remat|custom_jvp|custom_vjp|shard_map|xmap|pmap)\((.*)\)$")
_NO_LAYER = frozenset({
    "while", "body", "cond", "checkpoint", "rematted_computation", "eval_jaxpr", "closed_call", "core_call",
    "remat", "pjit", "scan", "branch_0_fun", "branch_1_fun", "custom_jvp_call", "custom_vjp_call",
    "custom_vjp_call_jaxpr", "shard_map", "jvp", "transpose",
})  # fmt: skip
MOST_MODULE = 200


def phase_of(module: Module, instruction: Instruction, known: dict[str, str], parent: str) -> str:
    """Returns the pass of an instruction: F, B or opt.

    Args:
        known: phases of the instructions before it, of the same computation, by name.
        parent: phase of the loop or call that it runs in.
    """
    if instruction.opcode in _TIMELESS:
        return parent
    name = named(module, instruction)
    if marked := _marked(name):
        return marked
    before = [known.get(operand, parent) for operand in instruction.operands]
    latest = max(before, key=_ORDER.__getitem__, default=parent)
    if parent == "B" or not name:
        return latest
    return "opt" if latest != "F" else parent


def named(module: Module, instruction: Instruction) -> str:
    """Returns the instruction's name in the user's program; of a fusion without one, that of its root or of the last of its parts
    that has one.
    """
    if instruction.op_name or instruction.opcode not in ("fusion", "call"):
        return instruction.op_name
    called = module.called(instruction, "calls", "to_apply")
    if called is None:
        return ""
    root = called.instructions[called.root].op_name
    return root or next((one.op_name for one in reversed(list(called.instructions.values())) if one.op_name), "")


def _marked(name: str) -> str:
    if "transpose(" in name or "rematted_computation" in name:
        return "B"
    return "F" if "jvp(" in name else ""


def is_again(module: Module, instruction: Instruction) -> bool:
    """Whether it repeats work of the forward pass."""
    return AGAIN[0] in named(module, instruction) or AGAIN[1] in instruction.name


def layer_of(name: str) -> str:
    """Path of the layer: `jit(step)/jvp(Model)/mlp/dot_general` is `Model/mlp`."""
    if name.startswith("(") or ":" in name:  # several that XLA merged
        return ""
    parts = name.split(";", 1)[0].split("/")[:-1]
    kept = []
    for part in parts[1:]:
        while found := _WRAPS.match(part):
            part = found[1]
        if part and part not in _NO_LAYER and not part.startswith(("jit(", "pjit(")):
            kept.append(part)
    return "/".join(kept)[:MOST_MODULE]


Numbers = Callable[[str], tuple[int, ...]]
_WINDOW = re.compile(r"(\w+)=([\dx_\-]+)")
_LABELS = re.compile(r"([a-z\d?]+)_([a-z\d?]+)->([a-z\d?]+)$")
_GEMM_CALLS = ("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8", "__cublas$lt$groupedMatmul")
_GEMM_CALLS += ("__triton_gemm", "__onednn$matmul", "__cublas$lt$matmul$mx")
_CONV_CALLS = ("__cudnn$conv",)
_MOST_DILATION = 4096
_MOST_COUNTED = 1 << 16  # positions of the shorter side; beyond, all are counted


@dataclass(frozen=True, slots=True)
class Product:
    """One product: `kind` gemm or conv; `shape` (batch, m, n, k)."""

    kind: str
    shape: tuple[int, int, int, int]
    flops: float


def product_of(module: Module, computation: Computation, instruction: Instruction) -> Product | None:
    """The product that an instruction is; None where it is none.

    Raises:
        DataError: dimensions that its operands have not.
    """
    opcode, target = instruction.opcode, instruction.target
    if opcode not in ("dot", "ragged-dot", "convolution") and not target:
        return None
    makers = (computation.instructions[name] for name in instruction.operands)
    operands = tuple(one.shapes[0] for one in makers if one.shapes)
    try:
        if opcode == "ragged-dot":
            return _ragged(instruction, operands)
        if opcode == "dot":
            return _dot(instruction.numbers, operands)
        if opcode == "convolution" or target.startswith(_CONV_CALLS):
            return _convolution(instruction, operands)
        return _dot(_library_dims(instruction), operands) if target in _GEMM_CALLS else None
    except (IndexError, ValueError, TypeError, AttributeError):
        text = f"{opcode} {instruction.name[:60]}: its dimensions do not fit its operands"
        raise module.refused(instruction.line, text) from None


def _dot(numbers: Numbers, operands: tuple[ArrayShape, ...]) -> Product:
    """A product; `numbers` gives its lists of dimensions by name."""
    left, right = operands[0].dims, operands[1].dims
    over = numbers("lhs_contracting_dims"), numbers("rhs_contracting_dims")
    along = numbers("lhs_batch_dims"), numbers("rhs_batch_dims")
    for dims, two in ((left, (over[0], along[0])), (right, (over[1], along[1]))):
        if min((*two[0], *two[1]), default=0) < 0 or len({*two[0], *two[1]}) < len(two[0]) + len(two[1]):
            raise ValueError("a dimension twice")
        _ = [dims[number] for part in two for number in part]
    k, batch = prod(left[d] for d in over[0]), prod(left[d] for d in along[0])
    if k != prod(right[d] for d in over[1]) or batch != prod(right[d] for d in along[1]):
        raise ValueError("sizes differ")
    m = prod(size for d, size in enumerate(left) if d not in over[0] + along[0])
    n = prod(size for d, size in enumerate(right) if d not in over[1] + along[1])
    return Product("gemm", (batch, m, n, k), 2.0 * batch * m * n * k)


def _ragged(instruction: Instruction, operands: tuple[ArrayShape, ...]) -> Product:
    """Rows in groups, each times a matrix of its own: every row is multiplied once."""
    rows, k = operands[0].dims[-2:]
    n = instruction.shapes[0].dims[-1]
    if instruction.shapes[0].dims[:-1] != operands[0].dims[:-1]:  # the gradient of the matrices: rows are summed over
        m, n = instruction.shapes[0].dims[-2:]
        return Product("gemm", (1, m, n, rows), 2.0 * m * n * rows)
    return Product("gemm", (1, rows, n, k), 2.0 * rows * n * k)


def _library_dims(instruction: Instruction) -> Numbers:
    """Dimensions of a call into a library of products; without any, those of matrices."""
    found = json.loads(instruction.attributes.get("backend_config", "{}").strip() or "{}")
    numbers = found.get("gemm_backend_config", found).get("dot_dimension_numbers")
    if numbers is None:
        rank = len(instruction.shapes[0].dims)
        usual = {"lhs_contracting_dims": (rank - 1,), "rhs_contracting_dims": (rank - 2,)}
        usual |= dict.fromkeys(("lhs_batch_dims", "rhs_batch_dims"), tuple(range(rank - 2)))
        return usual.__getitem__
    listed = {
        f"{side}_{name}_dims": tuple(int(d) for d in numbers.get(f"{side}_{name}_dimensions", ()))
        for side in ("lhs", "rhs")
        for name in ("contracting", "batch")
    }
    return listed.__getitem__


def _convolution(instruction: Instruction, operands: tuple[ArrayShape, ...]) -> Product:
    found = _LABELS.match(instruction.attributes.get("dim_labels", ""))
    if found is None:
        raise ValueError("no dim_labels")
    into, kernel, out = found.groups()
    result = instruction.shapes[0].dims
    left, right = operands[0].dims, operands[1].dims
    target = instruction.target
    if "BackwardInput" in target:
        left, result = result, left
    elif "BackwardFilter" in target:
        right, result = result, right
    window = dict(_WINDOW.findall(instruction.attributes.get("window", "")))
    spatial = [label for label in kernel if label.isdigit()]
    positions = 1
    for number, label in enumerate(spatial):
        sizes = left[into.index(label)], right[kernel.index(label)], result[out.index(label)]
        positions *= _positions(window, number, *sizes)
    groups = max(int(instruction.attributes.get("batch_group_count", "1")), 1)
    k_in, n = right[kernel.index("i")], result[out.index("f")]
    rows = result[out.index("b")]
    flops = 2.0 * positions * rows * n * k_in
    if groups > 1:
        flops /= groups if left[into.index("b")] == rows * groups else 1
    m = rows * prod(result[out.index(label)] for label in spatial)
    k = k_in * prod(right[kernel.index(label)] for label in spatial)
    kind = "conv" if spatial else "gemm"
    return Product(kind, (1, m, n, k), flops)


def _positions(window: dict[str, str], number: int, size: int, kernel: int, out: int) -> int:
    """Pairs of an output and a kernel position along one dimension that meet an element of the input."""
    stride, before = _one(window, "stride", number, "1"), _one(window, "pad", number, "0_0").split("_")
    hole, reach = int(_one(window, "lhs_dilate", number, "1")), int(_one(window, "rhs_dilate", number, "1"))
    step, pad = int(stride), int(before[0])
    if max(hole, step, reach) > _MOST_DILATION or min(step, hole, reach) < 1:
        raise ValueError("a window beyond bounds")
    total = 0
    few = min(kernel, out)
    if few > _MOST_COUNTED:
        return kernel * out
    swap = out < kernel  # count along the longer one by arithmetic
    for one in range(few):
        total += _hits(
            one * (step if swap else reach) - pad, kernel if swap else out, reach if swap else step, size, hole
        )
    return total


def _hits(first: int, n: int, step: int, size: int, hole: int) -> int:
    """Counts the terms of `first + i step`, i below `n`, that lie from 0 to `(size - 1) hole` and that `hole` divides."""
    low = max(0, -(first // step)) if first < 0 else 0
    high = min(n - 1, ((size - 1) * hole - first) // step)
    if high < low:
        return 0
    if hole == 1:
        return high - low + 1
    period = hole // gcd(step, hole)
    begin = next((i for i in range(low, min(high + 1, low + period)) if (first + i * step) % hole == 0), None)
    return 0 if begin is None else (high - begin) // period + 1


def _one(window: dict[str, str], key: str, number: int, default: str) -> str:
    values = window.get(key)
    return values.split("x")[number] if values else default

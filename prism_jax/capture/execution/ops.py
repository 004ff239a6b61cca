"""Finds the work of an execution trace: which nodes the device runs, in which pass and step, with FLOPs, bytes and product sizes.

PyTorch records every layer of a call: aten::conv2d calls aten::convolution, which calls aten::cudnn_convolution, which starts the
kernel. The innermost one with work of its own counts: a product, convolution or lookup that calls no other; memory traffic that
calls nothing else with work. Fused attention counts as one, whatever it calls.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from ...workload.captured.program import OWN_KERNELS, CapturedOp
from .node import (
    ATTENTION,
    ATTENTION_BACK,
    CONVOLUTIONS_BACK,
    GATHERS,
    HOST,
    WRITES,
    Node,
    TraceTensor,
    is_fusible,
    kind_of,
    own_name,
    tensors,
)
from .trace import ExecutionTrace

BACK_PRODUCTS = 2.5  # of attention: five products against two, as kernels that keep no scores compute them again
_DTYPES = {
    "float": "fp32", "double": "fp64", "half": "fp16", "bfloat16": "bf16", "long int": "int64", "long": "int64", "int": "int32",
    "short": "int16", "short int": "int16", "unsigned char": "int8", "signed char": "int8", "char": "int8", "byte": "int8",
    "bool": "bool",
    "float32": "fp32", "float16": "fp16", "float64": "fp64", "int64": "int64", "int32": "int32", "uint8": "int8", "int8": "int8",
}  # fmt: skip
_ITEM_BYTES = {
    "fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "bool": 1,
}  # fmt: skip
_BY_BYTES = {1: "int8", 2: "bf16", 4: "fp32", 8: "fp64"}
_FLOATS = ("fp64", "fp32", "bf16", "fp16", "fp8")
Sizes = tuple[int, ...]
Works = tuple[CapturedOp, ...]


def dtype_of(tensor: TraceTensor) -> str:
    """Our word for the type of its elements; by their size where the name is not known."""
    return _word(tensor.dtype) or _BY_BYTES.get(tensor.item_bytes, "fp32")


def item_bytes(name: str, unknown: int) -> int:
    """Bytes of an element by the name that PyTorch gives its type; `unknown` where the name is not known."""
    return _ITEM_BYTES.get(_word(name), unknown)


def _word(name: str) -> str:
    """Our word for a type by its name; empty where it is not known."""
    plain = name.removeprefix("c10::").lower()
    return "fp8" if plain.startswith("float8") else _DTYPES.get(plain, "")


def work_of(node: Node) -> Works:
    """Returns the work of an operator as rows of the forward pass; two products for the backward pass of a convolution.

    Raises:
        SpecError: a size is beyond all measure.
    """
    kind = kind_of(node.name, node.backend)
    given, made = list(node.tensors_in), list(node.tensors_out)
    own = own_name(node.name)
    found: Works = ()
    if kind == "gemm":
        found = _product(node, given, made)
    elif kind == "conv":
        found = _convolution_back(node, given, made) if own in CONVOLUTIONS_BACK else _convolution(node, given, made)
    elif kind == "attention":
        found = _attention(node, given, made)
    return found or (_traffic(node, kind, given, made),)


def _product(node: Node, given: list[TraceTensor], made: list[TraceTensor]) -> Works:
    own = own_name(node.name)
    given = given[1:] if own in ("addmm", "baddbmm", "_addmm_activation", "addmv") else given
    if len(given) < 2 or not given[0].shape or not given[1].shape:
        return ()
    left, right = given[0].shape, given[1].shape
    batch = 1
    if own == "linear":
        left, right = (prod(left[:-1]), left[-1]), right[::-1]
    elif own in ("bmm", "baddbmm") and len(left) == len(right) == 3:
        batch, left, right = left[0], left[1:], right[1:]
    elif own in ("_grouped_mm", "_scaled_grouped_mm") and len(right) == 3:
        right = right[1:]
    elif own in ("mv", "addmv"):
        right = (*right, 1)
    if not (len(left) == len(right) == 2 and left[1] == right[0]):
        return ()
    (m, k), n = left, right[1]
    moved = sum(one.n_bytes for one in (*given[:2], *made[:1]))
    written = sum(one.n_bytes for one in made[:1])
    return (_work(node, "gemm", dtype_of(given[0]), (batch, m, n, k), 2.0 * batch * m * n * k, moved, written),)


def _work(
    node: Node, kind: str, dtype: str, shape: Sizes, flops: float, n_bytes: float, written: float,
    *, fusible: bool = False, causal: bool = False,
) -> CapturedOp:  # fmt: skip
    """The row of an operator."""
    return CapturedOp(
        node.name[:200], kind, "F", dtype, shape, flops, n_bytes,
        fusible=fusible, causal=causal, output_bytes=written,
    )  # fmt: skip


def _sizes(image: Sizes, filters: Sizes, out: Sizes, *, transposed: bool) -> tuple[int, int, int, int] | None:
    """(groups, positions, filters of a group, taps of a group) of a convolution."""
    if len(image) < 3 or len(filters) != len(image) or len(out) != len(image) or not filters[1]:
        return None
    if transposed:  # from each input position to all taps
        image, out = out, image
    groups = max(image[1] // filters[1], 1)
    return groups, out[0] * prod(out[2:]), filters[0] // groups, prod(filters[1:])


def _is_transposed(node: Node) -> bool:
    flags = [one for one in node.inputs if isinstance(one, bool)]
    return "transpose" in own_name(node.name) or (
        own_name(node.name) in ("convolution", "_convolution") and flags[:1] == [True]
    )


def _convolution(node: Node, given: list[TraceTensor], made: list[TraceTensor]) -> Works:
    if len(given) < 2 or not made:
        return ()
    sizes = _sizes(given[0].shape, given[1].shape, made[0].shape, transposed=_is_transposed(node))
    if sizes is None:
        return ()
    groups, m, n, k = sizes
    moved = given[0].n_bytes + given[1].n_bytes + made[0].n_bytes
    return (_work(node, "conv", dtype_of(given[0]), sizes, 2.0 * groups * m * n * k, moved, made[0].n_bytes),)


def _convolution_back(node: Node, given: list[TraceTensor], made: list[TraceTensor]) -> Works:
    """Gradients of the input and of the filters, those of them that are asked for."""
    if len(given) < 3:
        return ()
    out, image, filters = given[:3]
    sizes = _sizes(image.shape, filters.shape, out.shape, transposed=False)
    if sizes is None:
        return ()
    groups, m, n, k = sizes
    mask = next(
        (one for one in reversed(node.inputs) if isinstance(one, tuple) and one and isinstance(one[0], bool)),
        (True, True),
    )
    flops, dtype, found = 2.0 * groups * m * n * k, dtype_of(image), []
    moved = out.n_bytes + filters.n_bytes + image.n_bytes
    own = own_name(node.name)
    if mask[0] and not own.endswith("_weight"):
        found.append(_work(node, "conv", dtype, (groups, m, k, n), flops, moved, image.n_bytes))
    if mask[1:2] != (False,) and not own.endswith("_input"):
        found.append(_work(node, "conv", dtype, (groups, n, k, m), flops, moved, filters.n_bytes))
    return tuple(found)


def _attention(node: Node, given: list[TraceTensor], made: list[TraceTensor]) -> Works:
    own = own_name(node.name)
    is_back = own in ATTENTION_BACK
    queries, keys, values = (given[1:4] if is_back else given[:3]) if len(given) >= 3 + is_back else (None,) * 3
    if (
        queries is None
        or keys is None
        or values is None
        or not all(len(one.shape) == 4 for one in (queries, keys, values))
    ):
        return ()
    by_heads = own.startswith("_scaled_dot_product")  # else [batch, position, head, size]
    q, kv, v = (
        one.shape if by_heads else (one.shape[0], one.shape[2], one.shape[1], one.shape[3])
        for one in (queries, keys, values)
    )
    causal = _flag(node, "is_causal") or _flag(node, "causal")
    shape = (q[0] * q[1], q[2], kv[2], q[3], v[3])
    flops = 2.0 * shape[0] * shape[1] * shape[2] * (shape[3] + shape[4])
    flops *= (BACK_PRODUCTS if is_back else 1.0) * (0.5 if causal else 1.0)
    written = sum(one.n_bytes for one in (made if is_back else made[:1]))
    read = sum(one.n_bytes for one in (queries, keys, values)) + (given[0].n_bytes if is_back else 0.0)
    return (_work(node, "attention", dtype_of(queries), shape, flops, read + written, written, causal=causal),)


def _flag(node: Node, name: str) -> bool:
    """The value of a truth argument, found by its place in the schema."""
    arguments = node.schema.partition("(")[2].partition(") ->")[0].replace("*, ", "").split(", ")
    at = next(
        (at for at, one in enumerate(arguments) if one.startswith("bool") and one.split("=")[0].endswith(f" {name}")),
        None,
    )
    return at is not None and at < len(node.inputs) and node.inputs[at] is True


def _traffic(node: Node, kind: str, given: list[TraceTensor], made: list[TraceTensor]) -> CapturedOp:
    """Memory traffic: inputs and outputs, each once."""
    own = own_name(node.name)
    written = sum(one.n_bytes for one in made)
    if kind == "embedding" or own in GATHERS:
        whole = [one for one in given if dtype_of(one) not in _FLOATS]  # indices
        read = sum(one.n_bytes for one in whole) + (written or max((one.n_bytes for one in given), default=0.0))
    else:
        read_from = list(tensors(node.inputs[1:])) if own in WRITES else given
        read = sum(one.n_bytes for one in read_from)
    first = next(_typed(made), None) or next(_typed(given), None)
    kind = kind if kind == "embedding" else "memory"
    shape = first.shape[:16] if first is not None else ()
    fusible = kind == "memory" and is_fusible(node.name, node.backend)
    dtype = dtype_of(first) if first is not None else "fp32"
    return _work(node, kind, dtype, shape, 0.0, read + written, written, fusible=fusible)


def _typed(found: list[TraceTensor]) -> Iterator[TraceTensor]:
    """Yields the tensors of floating-point numbers, then the others."""
    yield from sorted(found, key=lambda one: dtype_of(one) not in _FLOATS)


COLLECTIVE = "record_param_comms"
STEP, OPTIMIZER = "ProfilerStep#", ("Optimizer.step", "## optimizer ##", "Optimizer.zero_grad", "## zero_grad ##")
LAST_OF_STEP = "Optimizer.step"
_BACKWARD = "autograd::engine::evaluate_function"
_CPU = ("cpu", "")


@dataclass(frozen=True)
class Placed:
    """A node that is a row of the program.

    Attributes:
        phase: F, B or opt.
        kind: one of `OP_KINDS`, or `COLLECTIVE`.
    """

    node: Node
    phase: str
    kind: str


def rows(trace: ExecutionTrace, launched: Container[int] = ()) -> Iterator[Placed]:
    """The nodes with work on the device, and collectives, in their order.

    Args:
        launched: numbers of nodes that are known to start kernels; they count, whatever their name.
    """
    kinds = _kinds(trace)
    own = _innermost(trace, kinds)
    phases = phases_of(trace)
    for node in trace.nodes:
        if node.name == COLLECTIVE:
            yield Placed(node, phases[node.id], COLLECTIVE)
        elif node.id in own:
            yield Placed(node, phases[node.id], kinds[node.id])
        elif node.id in launched:
            yield Placed(node, phases[node.id], "memory")


def _kinds(trace: ExecutionTrace) -> dict[int, str]:
    """Number of a node -> its kind; operators that touch no device are of the host, unless the whole trace is."""
    devices = {one.device for node in trace.nodes for one in (*node.tensors_in, *node.tensors_out)}
    on_cpu = all(one in _CPU for one in devices)
    found: dict[int, str] = {}
    for node in trace.nodes:
        kind = kind_of(node.name, node.backend)
        if kind not in (HOST, "none"):
            touched = [*node.tensors_in, *node.tensors_out]
            if not touched or not (on_cpu or any(one.device not in _CPU for one in touched)):
                kind = HOST
        found[node.id] = kind
    return found


def _innermost(trace: ExecutionTrace, kinds: Mapping[int, str]) -> set[int]:
    """Numbers of nodes with work of their own."""
    computes: set[int] = set()  # those below which there is a product, a convolution, a lookup
    works: set[int] = set()  # below which there is any work
    inside: set[int] = set()  # of fused attention
    for node in trace.nodes:
        if node.parent in inside or own_name(_name(trace, node.parent)) in (*ATTENTION, *ATTENTION_BACK):
            inside.add(node.id)
    own: set[int] = set()
    for node in reversed(trace.nodes):
        kind = kinds[node.id]
        if node.id in inside:
            continue
        is_compute = kind in OWN_KERNELS
        if (is_compute and node.id not in computes) or (kind == "memory" and node.id not in works):
            own.add(node.id)
        if is_compute or node.id in computes:
            computes.add(node.parent)
        if is_compute or kind == "memory" or node.id in works:
            works.add(node.parent)
    return own


def _name(trace: ExecutionTrace, number: int) -> str:
    found = trace.by_id.get(number)
    return "" if found is None else found.name


def phases_of(trace: ExecutionTrace) -> dict[int, str]:
    """Number of a node -> F, B or opt, by its callers; threads of autograd run the backward pass."""
    main = next((node.thread for node in trace.nodes if node.name.startswith((STEP, *OPTIMIZER))), 1)
    back = {node.thread for node in trace.nodes if node.name.startswith(_BACKWARD)} - {main}
    found: dict[int, str] = {}
    for node in trace.nodes:
        if node.name.startswith(_BACKWARD):
            phase = "B"
        elif node.name.startswith(OPTIMIZER):
            phase = "opt"
        else:
            phase = found.get(node.parent, "") or ("B" if node.thread in back else "")
        found[node.id] = phase
    return {number: phase or "F" for number, phase in found.items()}


def last_step(trace: ExecutionTrace) -> tuple[range, int]:
    """The last whole step, as a range of `rf_id`, and how many there are.

    A step ends with its optimizer; where there is none, a step is what `ProfilerStep#` marks; where there is neither, the trace
    is one step.
    """
    end = max(node.rf_id for node in trace.nodes) + 1
    ends = _ends_of(trace, [node for node in trace.nodes if node.name.startswith(LAST_OF_STEP)])
    if len(ends) > 1:
        return range(ends[-2], ends[-1]), len(ends)
    starts = [node.rf_id for node in trace.nodes if node.name.startswith(STEP)]
    if len(ends) == 1 or len(starts) < 2:
        return range(end), 1
    works = [placed.node.rf_id for placed in rows(trace)]
    steps = [range(*edges) for edges in pairwise([*starts, end])]
    whole = [step for step in steps if any(one in step for one in works)]
    return (whole[-1], len(whole)) if whole else (range(end), 1)


def _ends_of(trace: ExecutionTrace, nodes: list[Node]) -> list[int]:
    """Returns, for each node, the first `rf_id` behind everything that it called."""
    found = []
    for node in nodes:
        last, open_ = node.rf_id, [node]
        while open_:
            for child in trace.children.get(open_.pop().id, ()):
                last = max(last, child.rf_id)
                open_.append(child)
        found.append(last + 1)
    return found

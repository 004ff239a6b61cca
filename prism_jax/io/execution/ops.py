"""Which nodes of an execution trace are work of the device, in which pass they run, and to which step they belong.

PyTorch records every layer of a call: aten::conv2d calls aten::convolution, which calls aten::cudnn_convolution, which starts the
kernel. The innermost one with work of its own counts: a product, convolution or lookup that calls no other; memory traffic that
calls nothing else with work. Fused attention counts as one, whatever it calls.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from ...workload.captured.rows import OWN_KERNELS
from .names import ATTENTION, ATTENTION_BACK, HOST, kind_of, own_name
from .node import Node
from .trace import ExecutionTrace

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
    """Number of a node -> F, B or opt: by what called it; threads of autograd run the backward pass."""
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
    has_work = [any(a <= one < b for one in _works(trace)) for a, b in zip(starts, [*starts[1:], end], strict=True)]
    whole = [pair for pair, works in zip(zip(starts, [*starts[1:], end], strict=True), has_work, strict=True) if works]
    if not whole:
        return range(end), 1
    return range(*whole[-1]), len(whole)


def _works(trace: ExecutionTrace) -> list[int]:
    return [placed.node.rf_id for placed in rows(trace)]


def _ends_of(trace: ExecutionTrace, nodes: list[Node]) -> list[int]:
    """For each node the first `rf_id` behind everything that it called."""
    found = []
    for node in nodes:
        last, open_ = node.rf_id, [node]
        while open_:
            for child in trace.children.get(open_.pop().id, ()):
                last = max(last, child.rf_id)
                open_.append(child)
        found.append(last + 1)
    return found

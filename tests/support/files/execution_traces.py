"""Small execution traces in every version of the format, and the profile of the same run. Nothing in them is from a real job.

The program: a linear layer (4 samples, 8 inputs, 16 outputs), its backward pass, an all-reduce of the gradient, an optimizer.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

VERSIONS = ("", "1.0.1", "1.0.3-chakra.0.0.4", "1.1.1-chakra.0.0.4")
PID = 77
GEMM_FLOPS = 2 * 4 * 8 * 16
GRADIENT_BYTES = 8 * 16 * 4
GROUPS = [
    {
        "pg_name": "0",
        "pg_desc": "default_pg",
        "backend_config": "cuda:nccl",
        "ranks": [],
        "group_size": 2,
        "group_count": 1,
    }
]
KERNEL_US = {"aten::addmm": 30.0, "aten::mm": 40.0, "nccl:all_reduce": 500.0, "aten::add_": 5.0}
Value = tuple[Any, Any, str]


def tensor(number: int, *shape: int, device: str = "cuda:0") -> Value:
    """A tensor of float32: value, shape, type."""
    n = 1
    for size in shape:
        n *= size
    return [number, number + 1000, 0, n, 4, device], list(shape), "Tensor(float)"


@dataclass
class Node:
    """A node, in no version yet."""

    id: int
    parent: int
    name: str
    rf_id: int
    thread: int = 1
    inputs: Sequence[Value] = ()
    outputs: Sequence[Value] = ()
    schema: str = ""


def program(groups: bool = True) -> list[Node]:
    """The nodes of the program.

    Args:
        groups: whether the process groups are listed, as since 1.1.0.
    """
    x, w, b, y, gw = tensor(20, 4, 8), tensor(21, 8, 16), tensor(22, 16), tensor(23, 4, 16), tensor(24, 8, 16)
    call: list[Value] = [
        ([gw[0]], [gw[1]], "GenericList[Tensor(float)]"),
        (9, [], "Int"),
        (["0", "default_pg"], [[], []], "Tuple[String,String]"),
        (0, [], "Int"),
        ("allreduce", [], "String"),
        ([], [], "GenericList[]"),
        ([], [], "GenericList[]"),
        (0, [], "Int"),
        (1, [], "Int"),
        (2, [], "Int"),
    ]
    listed: list[Value] = [(json.dumps(GROUPS), [], "String")]
    nodes = [
        Node(1, 1, "[pytorch|profiler|execution_trace|process]", 0, 0),
        Node(2, 1, "[pytorch|profiler|execution_trace|thread]", 0, 1),
        Node(3, 1, "[pytorch|profiler|execution_trace|thread]", 0, 2),
        Node(4, 2, "## process_group:init ##", 1, 1, listed),
        Node(5, 2, "ProfilerStep#3", 2),
        Node(6, 5, "aten::linear", 3, 1, [x, w, b], [y]),
        Node(7, 6, "aten::t", 4, 1, [w], [w]),
        Node(8, 6, "aten::addmm", 5, 1, [b, x, w], [y], "aten::addmm(Tensor self, Tensor mat1, Tensor mat2) -> Tensor"),
        Node(9, 3, "autograd::engine::evaluate_function: AddmmBackward0", 6, 2),
        Node(10, 9, "aten::mm", 7, 2, [tensor(25, 8, 4), y], [gw]),
        Node(11, 3, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 8, 2),
        Node(12, 11, "torch::autograd::AccumulateGrad", 9, 2, [gw]),
        Node(13, 3, "c10d::allreduce_", 10, 2, [([gw[0]], [gw[1]], "GenericList[Tensor(float)]")]),
        Node(14, 13, "record_param_comms", 11, 2, call, call[:1]),
        Node(15, 14, "nccl:all_reduce", 12, 2, [gw]),
        Node(16, 5, "Optimizer.step#SGD.step", 13),
        Node(17, 16, "aten::add_", 14, 1, [w, gw], [w]),
    ]
    return nodes if groups else [node for node in nodes if node.name != "## process_group:init ##"]


def written(nodes: Sequence[Node], version: str, attrs_as: str = "list") -> dict[str, Any]:
    """An execution trace as the JSON of a version.

    Args:
        version: of `VERSIONS`; empty: without a schema, as the oldest files.
        attrs_as: list (of name, type and value) or object.
    """
    is_flat = "chakra" not in version
    made = [_flat(node) if is_flat else _chakra(node, attrs_as) for node in nodes]
    return {**({"schema": version} if version else {}), "pid": PID, "time": "2024-01-01", "start_ts": 5, "nodes": made}


def _flat(node: Node) -> dict[str, Any]:
    sides = (("input", node.inputs), ("output", node.outputs))
    values = {
        f"{side}{end}": [one[at] for one in found]
        for side, found in sides
        for at, end in enumerate(("s", "_shapes", "_types"))
    }
    own = {
        "name": node.name,
        "id": node.id,
        "rf_id": node.rf_id,
        "parent": node.parent,
        "fw_parent": 0,
        "seq_id": -1,
        "scope": 0,
    }
    return {**own, "tid": node.thread, "fw_tid": 0, "op_schema": node.schema, **values}


def _chakra(node: Node, attrs_as: str) -> dict[str, Any]:
    attrs = {
        "rf_id": node.rf_id,
        "fw_parent": 0,
        "seq_id": -1,
        "scope": 0,
        "tid": node.thread,
        "op_schema": node.schema,
    }
    listed = [{"name": name, "type": "uint64", "value": value} for name, value in attrs.items()]
    sides = {
        side: {key: [one[at] for one in found] for at, key in enumerate(("values", "shapes", "types"))}
        for side, found in (("inputs", node.inputs), ("outputs", node.outputs))
    }
    return {
        "id": node.id,
        "name": node.name,
        "ctrl_deps": node.parent,
        **sides,
        "attrs": listed if attrs_as == "list" else attrs,
    }


def trace_text(version: str = VERSIONS[-1], attrs_as: str = "list", groups: bool = True) -> str:
    """The program's execution trace."""
    return json.dumps(written(program(groups), version, attrs_as))


def profile_text(n_steps: int = 3, numbered: bool = False, extra: Sequence[str] = ()) -> str:
    """A profile of `n_steps` steps of the program: every operator 10 us, with the kernels of `KERNEL_US`.

    Args:
        numbered: whether operators carry the number of their call, as since PyTorch 2.2.
        extra: names of operators that only the profile has, one before each step.
    """
    events: list[dict[str, Any]] = []
    link, now = 0, 1000.0
    for step in range(n_steps):
        for name in extra:
            events.append(_event("cpu_op", name, now, 2.0, 100, {}))
            now += 5.0
        for node in program():
            if node.rf_id == 0:
                continue
            number = {"Record function id": node.rf_id + 100 * step} if numbered and step == 0 else {}
            events.append(
                _event("cpu_op", node.name, now, 10.0, 99 + node.thread, {"External id": 7_000 + len(events), **number})
            )
            if node.name in KERNEL_US:
                link += 1
                events.append(
                    _event("cuda_runtime", "cudaLaunchKernel", now + 4.0, 2.0, 99 + node.thread, {"correlation": link})
                )
                kernel = "ncclKernel_AllReduce" if "nccl" in node.name else f"kernel of {node.name}"
                events.append(
                    _event(
                        "kernel", kernel, now + 8.0, KERNEL_US[node.name], 7, {"correlation": link, "External id": link}
                    )
                )
            now += 20.0
        now += 1000.0
    return json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A GPU"}], "traceEvents": events})


def _event(
    category: str, name: str, start: float, duration: float, thread: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": PID,
        "tid": thread,
        "ts": start,
        "dur": duration,
        "args": args,
    }

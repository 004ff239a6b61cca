"""`ExecutionTrace`: the nodes of one rank, with their order and their tree, checked; `read_execution_trace`.

An execution trace has no clock that means anything: what is used of it is the order of its nodes, never a duration.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ...errors import DataError
from ..job.document import short
from ..json_items import JsonItems
from .documents import JsonDocument
from .node import Node, node_of

MAX_NODES = 1_000_000
VERSIONS = ("1.0", "1.1")  # of the schema; the rest of it (-chakra.0.0.4) names the format it follows
REMEDY = "Record it with torch.profiler.ExecutionTraceObserver."
_VERSION = re.compile(r"(\d+\.\d+)(\.\d+)*(-chakra[0-9.]*)?")


class Dependency(NamedTuple):
    """`user` reads a tensor that `maker` wrote; both are numbers of nodes."""

    maker: int
    user: int


@dataclass(frozen=True)
class ExecutionTrace:
    """One rank.

    Attributes:
        name: what messages call the file.
        schema: version of the format; empty where the file does not say.
        pid: process that was recorded; None where the file does not say.
        nodes: in the order in which they began.
    """

    name: str
    schema: str
    pid: int | None
    nodes: tuple[Node, ...]

    @cached_property
    def by_id(self) -> dict[int, Node]:
        """Number of a node -> the node."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def children(self) -> dict[int, list[Node]]:
        """Number of a node -> the nodes that it called, in their order."""
        found: defaultdict[int, list[Node]] = defaultdict(list)
        for node in self.nodes:
            if node.parent != node.id:
                found[node.parent].append(node)
        return dict(found)

    def above(self, node: Node) -> Iterator[Node]:
        """Who called it, nearest first."""
        while (parent := self.by_id.get(node.parent)) is not None and parent is not node:
            yield parent
            node = parent

    def dependencies(self, among: set[int]) -> Iterator[Dependency]:
        """Which of the nodes `among` (their numbers) needs what which other wrote last; by the numbers of tensors."""
        maker: dict[int, int] = {}
        for node in self.nodes:
            if node.id not in among:
                continue
            seen = {maker[one.number] for one in node.tensors_in if one.number in maker}
            yield from (Dependency(one, node.id) for one in sorted(seen) if one != node.id)
            for one in node.tensors_out:
                maker[one.number] = node.id


def read_execution_trace(document: JsonDocument) -> ExecutionTrace:
    """The execution trace in a document.

    Raises:
        DataError: not JSON, cut off, of an unknown version, too large; two nodes of one number, a parent that is missing, nodes
            that call each other in a circle; names the node.
    """
    items = JsonItems(document.name, document.pieces, "nodes", "node")
    nodes: list[Node] = []
    for raw in items:
        if len(nodes) >= MAX_NODES:
            raise DataError(f"{document.name}: more than {MAX_NODES:,} nodes. Record fewer steps.")
        nodes.append(node_of(raw, f"{document.name}: node {items.number}"))
    if not items.has_list:
        raise DataError(f'{document.name}: no "nodes": not an execution trace. {REMEDY}')
    if not nodes:
        raise DataError(f"{document.name}: an execution trace without nodes. {REMEDY}")
    schema = _schema(document.name, items.beside)
    pid = items.beside.get("pid")
    _check_tree(document.name, nodes)
    ordered = sorted(range(len(nodes)), key=lambda at: (nodes[at].rf_id, nodes[at].id))
    return ExecutionTrace(document.name, schema, pid if type(pid) is int else None, tuple(nodes[at] for at in ordered))


def _schema(name: str, beside: dict[str, Any]) -> str:
    found = beside.get("schema", "")
    match = _VERSION.fullmatch(found) if isinstance(found, str) else None
    if found == "" or (match is not None and match.group(1) in VERSIONS):
        return str(found)
    raise DataError(
        f"{name}: schema {short(found)} of execution traces is not known; {', '.join(VERSIONS)} with any ending are."
    )


def _check_tree(name: str, nodes: list[Node]) -> None:
    """Every node leads to a root."""
    parent: dict[int, int] = {}
    for at, node in enumerate(nodes, 1):
        if node.id in parent:
            raise DataError(f"{name}: node {at} id: {node.id} is the number of another node, too")
        parent[node.id] = node.parent
    run_of: dict[int, int] = {}  # node -> at which node the walk began that met it first
    for at, node in enumerate(nodes, 1):
        here = node.id
        while here not in run_of:
            run_of[here] = at
            above = parent[here]
            if above == here or (
                above in (0, 1) and above not in parent
            ):  # a root, or below a process that is not listed
                break
            if above not in parent:
                raise DataError(f"{name}: node {at}: {above} is called its caller, but no node has that number")
            if run_of.get(above) == at:
                raise DataError(f"{name}: node {at}: nodes {here} and {above} call each other in a circle")
            here = above

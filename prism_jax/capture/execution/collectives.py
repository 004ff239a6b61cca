"""Collectives of an execution trace: nodes `record_param_comms` in all of their versions, and the process groups.

Its inputs are, in this order: tensors, the sequence number, the group (a pointer until 1.0.1; name and description since), the
rank of the root or peer, the name of the collective, how inputs and outputs are split, and since 1.0.3 the first rank of the
group, the distance between its ranks and their number. Since 1.1.1 the attributes say the same in words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from ...core.errors import DataError
from ...profiles.names import communication_kind
from ...tables.document import short
from .node import Node, TraceTensor, Value
from .ops import dtype_of, item_bytes
from .trace import ExecutionTrace

INIT = "## process_group:init ##"
WAIT = "wait"
MAX_GROUPS = 100_000
MAX_RANKS = 10_000_000
_SILENT = ("wait", "init", "startcoalesced", "endcoalesced", "pointtopoint", "")
# What a network has no law for -> what it costs about as much as.
STANDS_FOR = {
    "gather": "all_gather",
    "scatter": "broadcast",
    "reduce": "all_reduce",
    "barrier": "all_reduce",
    "send_recv": "send",
}


@dataclass(frozen=True)
class ProcessGroup:
    """Group of ranks that communicate.

    Attributes:
        name: as PyTorch numbers it, or the pointer of old versions.
        description: name in the program: mesh_tp, default_pg; empty where the trace does not say.
        ranks: how many; 0 where the trace does not say.
        stride: between neighbours.
    """

    name: str
    description: str = ""
    ranks: int = 0
    stride: int = 1


@dataclass(frozen=True)
class Collective:
    """One call of a collective.

    Attributes:
        kind: all_reduce, ...; `WAIT` for the wait for an earlier one.
        sequence: number that the call and its wait share.
        n_bytes: as networks count them.
        stands_for: real name of the collective, where there is no law for it.
    """

    kind: str
    sequence: int
    group: ProcessGroup
    n_bytes: float
    dtype: str
    stands_for: str = ""


def groups_of(trace: ExecutionTrace) -> dict[str, ProcessGroup] | None:
    """Name -> process group, as the trace lists them; None where it has no list (before 1.1.0).

    Raises:
        DataError: the list cannot be read, or says what no group is.
    """
    found: dict[str, ProcessGroup] | None = None
    for node in trace.nodes:
        if node.name != INIT:
            continue
        found = found or {}
        for value in node.inputs:
            for group in _listed(value, f"{trace.name}: node {node.id} ({INIT})"):
                found[group.name] = group
    return found


def _listed(value: Value, place: str) -> Iterator[ProcessGroup]:
    if not isinstance(value, str):
        return
    try:
        rows = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: its list of process groups is not JSON: {str(error)[:100]}") from None
    if not isinstance(rows, list) or len(rows) > MAX_GROUPS:
        raise DataError(f"{place}: {short(rows)} is no list of at most {MAX_GROUPS:,} process groups")
    for row in rows:
        if not isinstance(row, dict):
            raise DataError(f"{place}: {short(row)} is no process group")
        members, size = row.get("ranks"), row.get("group_size", 0)
        members = members if isinstance(members, list) and all(type(one) is int for one in members) else []
        if type(size) is not int or not 0 <= size <= MAX_RANKS:
            raise DataError(f"{place} group_size: {short(size)} is not a number of ranks")
        stride = members[1] - members[0] if len(members) > 1 else 1
        yield ProcessGroup(
            str(row.get("pg_name"))[:100], str(row.get("pg_desc") or "")[:100], len(members) or size, max(stride, 1)
        )


def collective(trace: ExecutionTrace, node: Node, groups: Mapping[str, ProcessGroup] | None) -> Collective | None:
    """Returns the collective of a node `record_param_comms`; None where nothing is sent.

    Raises:
        DataError: its group is not in the list of groups, or a number is none; names the node.
    """
    place = f"{trace.name}: node {node.id} ({node.name})"
    at = next(
        (at for at, value in enumerate(node.inputs) if isinstance(value, str) and not value.startswith("<")), None
    )
    said = node.attrs.get("collective_name")
    name = said if isinstance(said, str) else "" if at is None else str(node.inputs[at])
    sequence = next((value for value in node.inputs if type(value) is int), -1)
    if name.lower() == WAIT:
        return Collective(WAIT, sequence, ProcessGroup(""), 0.0, "fp32")
    kind = communication_kind(name)
    if not kind or name.lower() in _SILENT:
        return None
    group = _group(node, at, groups, place)
    given, made = list(node.tensors_in), list(node.tensors_out)
    n_bytes = _bytes(kind, node, given, made, group.ranks)
    first = next(iter([*given, *made]), None)
    return Collective(
        STANDS_FOR.get(kind, kind),
        sequence,
        group,
        n_bytes,
        "fp32" if first is None else dtype_of(first),
        kind * (kind in STANDS_FOR),
    )


def _bytes(kind: str, node: Node, given: list[TraceTensor], made: list[TraceTensor], ranks: int) -> float:
    """Bytes as `Network.collective` counts them."""
    sent, received = _amount(node, "in_msg_nelems", given), _amount(node, "out_msg_nelems", made)
    if kind == "barrier":
        return 0.0
    if kind in ("all_gather", "gather"):
        return max(received, sent * max(ranks, 1))
    if kind in ("reduce_scatter", "scatter"):
        return max(sent, received * max(ranks, 1))
    return sent or received


def _amount(node: Node, name: str, found: list[TraceTensor]) -> float:
    """Bytes of the tensors; by the number of elements that the attributes state where there are none."""
    said = node.attrs.get(name)
    if found or type(said) is not int or not 0 <= said < 2**60:
        return sum(one.n_bytes for one in found)
    return float(said) * item_bytes(str(node.attrs.get("dtype", "")), 2)


def _group(node: Node, at: int | None, groups: Mapping[str, ProcessGroup] | None, place: str) -> ProcessGroup:
    """Returns the group of a call: by name in the list; else as the call itself describes it."""
    before = node.inputs[:at] if at is not None else ()
    named = next(
        (v for v in reversed(before) if isinstance(v, tuple) and len(v) == 2 and all(isinstance(o, str) for o in v)),
        None,
    )
    own = named if isinstance(named, tuple) else (node.attrs.get("pg_name"), node.attrs.get("pg_desc"))
    name, description = (str(one) if isinstance(one, str) else "" for one in own)
    numbers = [v for v in node.inputs[at + 1 :] if type(v) is int] if at is not None else []
    stride, ranks = (numbers[1], numbers[2]) if len(numbers) >= 3 else (1, 0)
    said = node.attrs.get("pg_size")
    ranks = said if type(said) is int and said > 0 else ranks
    if not 0 <= ranks <= MAX_RANKS or not -1 <= stride <= MAX_RANKS:
        _refuse(place, f"{ranks} ranks {stride} apart are no process group")
    if groups is not None and name:
        listed = groups.get(name)
        if listed is None:
            known = ", ".join(list(groups)[:5]) or "none"
            _refuse(place, f"process group {name[:60]!r} is not in the list of groups ({INIT}), which has {known}")
        return listed if listed.ranks else ProcessGroup(name, listed.description or description, ranks, max(stride, 1))
    if not name and len(before) >= 2:  # the pointer of old versions, after the sequence number
        pointer = [v for v in before if type(v) is int]
        name = str(pointer[1]) if len(pointer) > 1 else ""
    splits = [len(v) for v in node.inputs[at + 1 :] if isinstance(v, tuple)] if at is not None else []
    return ProcessGroup(name, description, ranks or max(splits, default=0), max(stride, 1))


def _refuse(place: str, reason: str) -> NoReturn:
    raise DataError(f"{place}: {reason}")

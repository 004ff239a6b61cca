"""Reads `ExecutionTrace`: the nodes of one rank, with their order and their tree, checked, from files as people keep them.

JSON files come one by one, plain, packed with gzip, in a tar archive of either kind, in a folder. Nothing is ever unpacked onto
the disk: the members of an archive are read where they lie, in the order in which they lie there. An execution trace has no
clock that means anything: what is used of it is the order of its nodes, never a duration.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from ...core.errors import DataError
from ...core.read_file import CHUNK_BYTES
from ...tables.document import short
from ...tables.json_items import JsonItems
from ...tables.streams import chunks, head
from .node import Node, node_of

ENDINGS = (".json", ".json.gz", ".tar.gz", ".tgz", ".tar")
MAX_FILES = 10_000
MAX_ARCHIVE = 2**30  # bytes of all members, headers included
START = 2**16  # bytes that a document is recognised by
_TAR, _TAR_AT = b"ustar", 257
_SCHEMA = re.compile(r"\"schema\"\s*:\s*\"[0-9.]+(-chakra[0-9.]*)?\"")
_NODES = re.compile(r"\"nodes\"\s*:\s*\[")
_EVENTS = re.compile(r"\"(traceEvents|deviceProperties|schemaVersion|distributedInfo)\"\s*:")


@dataclass(frozen=True)
class JsonDocument:
    """A JSON file, or a member of an archive; its pieces are read before the next document is asked for.

    Attributes:
        name: in messages: the file, and the member after a colon.
        start: its first 64 KiB.
        pieces: all of its content, unpacked.
    """

    name: str
    start: str
    pieces: Iterator[bytes]

    @property
    def is_trace(self) -> bool:
        """Whether it is an execution trace."""
        return not self.is_profile and bool(_SCHEMA.search(self.start) or _NODES.search(self.start))

    @property
    def is_profile(self) -> bool:
        """Whether it is a profile of the PyTorch profiler (Kineto)."""
        return bool(_EVENTS.search(self.start))


def documents(path: Path) -> Iterator[JsonDocument]:
    """The JSON files that `path` names: itself, the members of an archive, or those of a folder, by name.

    Raises:
        DataError: cannot be read; a damaged archive; too many or too large.
    """
    for file in _files(path):
        start = head(file, START)
        if start[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
            yield from _members(file)
        else:
            yield JsonDocument(str(file), start.decode("utf-8", "replace"), chunks(file))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        names = sorted(islice(os.listdir(path), MAX_FILES + 1))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(names) > MAX_FILES:
        raise DataError(f"{path}: more than {MAX_FILES:,} files")
    return [path / name for name in names if name.lower().endswith(ENDINGS) and not name.startswith(".")]


def _members(file: Path) -> Iterator[JsonDocument]:
    """The JSON files in a tar archive."""
    stream = _Pieces(file)
    number = 0
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as archive:
            for member in archive:
                number += 1
                if number > MAX_FILES:
                    raise DataError(f"{file}: an archive of more than {MAX_FILES:,} files")
                own = Path(member.name).name
                content = archive.extractfile(member) if member.isreg() else None
                if content is None or not own.endswith(".json") or own.startswith("."):
                    continue
                first = content.read(START)
                name = f"{file}:{member.name[:200]!r}".replace("'", "")
                yield JsonDocument(name, first.decode("utf-8", "replace"), _rest(first, content))
    except (tarfile.TarError, EOFError, ValueError, OverflowError, UnicodeError) as error:
        raise DataError(f"{file}: a damaged tar archive after member {number}: {str(error)[:100]}") from None


def _rest(first: bytes, content: IO[bytes]) -> Iterator[bytes]:
    yield first
    while piece := content.read(CHUNK_BYTES):
        yield piece


class _Pieces:
    """The unpacked content of a file, to be read in any sizes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._pieces = chunks(file)
        self._left = b""
        self._n_bytes = 0

    def read(self, size: int = -1) -> bytes:
        """Reads at most `size` bytes; fewer only where the file ends."""
        parts, n = [self._left], len(self._left)
        while n < size and (piece := next(self._pieces, b"")):
            parts.append(piece)
            n += len(piece)
            self._n_bytes += len(piece)
            if self._n_bytes > MAX_ARCHIVE:
                raise DataError(
                    f"{self.file}: an archive of more than {MAX_ARCHIVE >> 30} GiB. Unpack it into a folder."
                )
        whole = b"".join(parts)
        taken, self._left = whole[:size], whole[size:]
        return taken


def holds_execution_traces(path: str | Path) -> bool:
    """Whether there is an execution trace; of a single file the first trace or profile in it decides.

    A folder in which PyTorch's profiler has named its files (`.pt.trace.json`) holds profiles.
    """
    path = Path(path)
    try:
        if not path.exists() or (path.is_dir() and any(".pt.trace.json" in file.name for file in _files(path))):
            return False
        found = (one.is_trace for one in documents(path) if one.is_trace or one.is_profile)
        return any(found) if path.is_dir() else next(found, False)
    except (DataError, OSError, ValueError):
        return False


MAX_NODES = 1_000_000
VERSIONS = ("1.0", "1.1")  # of the schema; the rest of it (-chakra.0.0.4) names the format it follows
REMEDY = "Record it with torch.profiler.ExecutionTraceObserver."
_VERSION = re.compile(r"(\d+\.\d+)(\.\d+)*(-chakra[0-9.]*)?")


@dataclass(frozen=True)
class ExecutionTrace:
    """Trace of one rank.

    Attributes:
        name: of the file, in messages.
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
        """Yields the callers of a node, nearest first."""
        while (parent := self.by_id.get(node.parent)) is not None and parent is not node:
            yield parent
            node = parent

    @property
    def n_dependencies(self) -> int:
        """Pairs of nodes of which one reads the last result of the other; by the numbers of tensors."""
        maker: dict[int, int] = {}
        n = 0
        for node in self.nodes:
            n += len({maker[one.number] for one in node.tensors_in if one.number in maker} - {node.id})
            maker.update((one.number, node.id) for one in node.tensors_out)
        return n


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

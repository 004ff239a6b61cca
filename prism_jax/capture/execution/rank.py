"""`rank_rows`: the step of one rank as rows of a captured program, from its execution trace and, if there is one, its profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...core.errors import DataError, SpecError
from ...workload.captured.program import CapturedComm, CapturedRow
from .collectives import WAIT, Collective, ProcessGroup, collective, groups_of
from .measured import MeasuredNodes
from .node import ATTENTION, ATTENTION_BACK, Node, kind_of, own_name
from .ops import COLLECTIVE, Placed, last_step, rows, work_of
from .trace import ExecutionTrace

_GRADIENT = "torch::autograd::AccumulateGrad"
_IN_PASSES = ("all_reduce", "reduce_scatter")
_SENDS = ("send", "recv")


@dataclass(frozen=True)
class RankRows:
    """Rows of one rank.

    Attributes:
        rows: of its last whole step.
        groups: axis -> group, of the collectives among the rows.
        n_step: steps in the trace.
        n_parameters: whose gradients the step accumulates.
        samples, tokens: of the step, as its first operator with a batch says; 0: not known.
        notes: assumptions, one sentence each.
    """

    rows: tuple[CapturedRow, ...]
    groups: Mapping[str, ProcessGroup]
    n_step: int
    n_parameters: float
    samples: int
    tokens: int
    notes: tuple[str, ...]


def rank_rows(trace: ExecutionTrace, measured: MeasuredNodes | None = None, world: int = 0) -> RankRows:
    """The rows of a rank.

    Args:
        world: ranks of the job, for groups that do not say how many they are; 0: not known.

    Raises:
        DataError: nothing in the trace is work of the device, or a size is beyond all measure; names the node.
    """
    step, n_step = last_step(trace)
    draft = _Draft(trace, measured, world)
    for placed in rows(trace, frozenset() if measured is None else measured.launching):
        if placed.node.rf_id in step:
            draft.add(placed)
    if not draft.rows:
        raise DataError(
            f"{trace.name}: no node is work of a device. Record a training step with ExecutionTraceObserver."
        )
    inside = [node for node in trace.nodes if node.rf_id in step]
    samples, tokens = _batch(inside)
    return RankRows(
        tuple(draft.finished()),
        draft.groups,
        n_step,
        sum(
            one.n_bytes / max(one.item_bytes, 1) for node in inside if node.name == _GRADIENT for one in node.tensors_in
        ),
        samples,
        tokens,
        tuple(dict.fromkeys(draft.notes)),
    )


@dataclass
class _Draft:
    """Rows while they are collected."""

    trace: ExecutionTrace
    measured: MeasuredNodes | None
    world: int
    rows: list[CapturedRow] = field(default_factory=list)
    groups: dict[str, ProcessGroup] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listed = groups_of(self.trace)
        self._calls: dict[int, int] = {}  # sequence number -> row
        self._waits: dict[int, int] = {}  # row -> row that waits

    def add(self, placed: Placed) -> None:
        """Adds one node."""
        if placed.kind == COLLECTIVE:
            self._communicate(placed)
        elif not self._counts_elsewhere(placed.node):
            self._work(placed)

    def _counts_elsewhere(self, node: Node) -> bool:
        """Whether its kernels are those of a collective or of fused attention that called it."""
        for one in self.trace.above(node):
            if one.name == COLLECTIVE or own_name(one.name) in (*ATTENTION, *ATTENTION_BACK):
                return True
        return False

    def _work(self, placed: Placed) -> None:
        node = placed.node
        seconds = None if self.measured is None else self.measured.seconds.get(node.id)
        try:
            found = work_of(node)
            own = None if seconds is None else seconds / len(found)
            self.rows += [replace(work, phase=placed.phase, seconds=own) for work in found]
        except SpecError as error:
            raise DataError(f"{self.trace.name}: node {node.id} ({node.name[:60]}): {error}") from None

    def _communicate(self, placed: Placed) -> None:
        found = collective(self.trace, placed.node, self._listed)
        if found is None:
            return
        if found.kind == WAIT:
            if (row := self._calls.get(found.sequence)) is not None:
                self._waits.setdefault(row, len(self.rows))
            return
        if found.stands_for:
            self.notes.append(f"{found.stands_for} costs as much as {found.kind}")
        ranks = found.group.ranks or (2 if found.kind in _SENDS else self.world) or 1
        axis = self._axis(replace(found.group, ranks=ranks))
        self._calls[found.sequence] = len(self.rows)
        self.rows.append(self._comm(found, axis, ranks, placed.phase))

    def _comm(self, found: Collective, axis: str, ranks: int, phase: str) -> CapturedComm:
        beside = phase == "B" and found.kind in _IN_PASSES
        return CapturedComm(
            found.kind, axis, ranks, found.group.stride, found.n_bytes, found.dtype, phase, asynchronous=beside
        )

    def _axis(self, group: ProcessGroup) -> str:
        """Name of the dimension of the mesh: the program's name of the group, or its number."""
        named = group.description.lower().removeprefix("mesh_")
        plain = named if named.isidentifier() and named not in ("default_pg", "undefined") else "world"
        if plain == "world" and group.ranks < self.world:
            plain = "group"
        axis, number = plain, 0
        while axis in self.groups and (self.groups[axis].ranks, self.groups[axis].stride) != (
            group.ranks,
            group.stride,
        ):
            number += 1
            axis = f"{plain}{number}"
        self.groups.setdefault(axis, group)
        return axis

    def finished(self) -> list[CapturedRow]:
        """The rows, with their waits."""
        found = list(self.rows)
        for at, wait in self._waits.items():
            row = found[at]
            if isinstance(row, CapturedComm) and at < wait < len(found):
                later = wait > at + 1
                found[at] = replace(row, asynchronous=later, wait=wait if later else None)
        return found


def _batch(inside: list[Node]) -> tuple[int, int]:
    """Samples and tokens of a sample: of the first lookup of tokens, else of the first product or convolution."""
    for node in inside:
        kind, given = kind_of(node.name, node.backend), list(node.tensors_in)
        if own_name(node.name) == "embedding" and len(given) > 1 and len(given[1].shape) == 2:
            return given[1].shape
        if kind == "conv" and given and given[0].shape:
            return given[0].shape[0], 0
        if kind == "gemm" and (large := [one for one in given if len(one.shape) > 1]):
            return large[0].shape[0], 0
    return 0, 0

"""PlanCache: a function of a plan, evaluated once per combination of the plan fields that it reads.

Nobody lists the fields: the function is given a plan that notes what is read of it, and what it read, in the order in which it
did, is a path in a decision tree whose leaf holds the value. Another plan with the same answers along a path has the same
value, since the function could not tell the two apart. So a cached value cannot be another plan's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ...plan.plan import ParallelPlan
from .table import PlanTable, distinct

T = TypeVar("T")
Rows = NDArray[np.intp]
Read = tuple[str, ...]
"""What is read of a plan: the name of a field, or of a method with its arguments."""


class _Node(Generic[T]):
    """A question about the plan with a child per answer, or a leaf with the index of a value."""

    __slots__ = ("children", "leaf", "read")

    def __init__(self) -> None:
        self.read: Read | None = None
        self.children: dict[Any, _Node[T]] = {}
        self.leaf = -1


class PlanCache(Generic[T]):
    """Values of `make(plan)`.

    Args:
        make: a function that reads its plan by attributes and `stride` only.
    """

    def __init__(self, make: Callable[[ParallelPlan], T]) -> None:
        self._make = make
        self._root: _Node[T] = _Node()
        self._reads: dict[Read, None] = {}  # of all paths, in order of appearance
        self.values: list[T] = []

    def look_up(self, table: PlanTable) -> tuple[list[T], Rows]:
        """Distinct values, and which of them every plan of the table has."""
        while True:
            n_read = len(self._reads)
            columns = [column for read in self._reads if isinstance(column := table.read(read), np.ndarray)]
            first, which = distinct(*columns) if columns else (np.zeros(1, np.intp), np.zeros(len(table), np.intp))
            leaves = np.array([self.index(PlanRow(table, row)) for row in first.tolist()], dtype=np.intp)
            if len(self._reads) == n_read:
                used, at = np.unique(leaves, return_inverse=True)
                return [self.values[leaf] for leaf in used.tolist()], at[which]

    def index(self, plan: PlanRow) -> int:
        """Number of the value of one plan, which is made if it is new."""
        node = self._root
        while node.read is not None:
            child = node.children.get(plan.read(node.read))
            if child is None:
                break
            node = child
        return node.leaf if node.leaf >= 0 else self._add(plan)

    def _add(self, plan: PlanRow) -> int:
        noted = _Noted(plan)
        value = self._make(cast(ParallelPlan, noted))
        node = self._root
        for read in noted.reads:
            node.read = read
            node = node.children.setdefault(plan.read(read), _Node())
            self._reads.setdefault(read)
        node.leaf = len(self.values)
        self.values.append(value)
        return node.leaf


class PlanRow:
    """One plan of a table: answers by what is read, and the plan itself."""

    def __init__(self, table: PlanTable, row: int) -> None:
        self._table, self._row = table, row
        self._plan: ParallelPlan | None = None

    def read(self, read: Read) -> Any:
        """A hashable answer: the entry of a column, or what all plans of the table share."""
        value = self._table.read(read)
        return int(value[self._row]) if isinstance(value, np.ndarray) else value

    @property
    def plan(self) -> ParallelPlan:
        """As an object."""
        if self._plan is None:
            self._plan = self._table.plan(self._row)
        return self._plan


class _Noted:
    """A plan that notes what is read of it; whatever is no column of the table is computed from what is."""

    def __init__(self, row: PlanRow) -> None:
        self._row = row
        self.reads: dict[Read, None] = {}

    def __getattr__(self, name: str) -> Any:
        plan = self._row.plan
        if name == "overlap":
            return _NotedOverlap(self)
        if name in PlanTable.DERIVED or name in plan.__dataclass_fields__:
            return self.note((name,), getattr(plan, name))
        made = getattr(type(plan), name)
        return made.__get__(self)

    def stride(self, axis: str) -> int:
        """As `ParallelPlan.stride`."""
        return self.note(("stride", axis), self._row.plan.stride(axis))

    def note(self, read: Read, value: Any) -> Any:
        """`value`, as the answer to `read`."""
        self.reads.setdefault(read)
        return value


class _NotedOverlap:
    """`ParallelPlan.overlap` of a noted plan."""

    def __init__(self, plan: _Noted) -> None:
        self._plan = plan

    def __getattr__(self, axis: str) -> bool:
        return self._plan.note((f"overlap_{axis}",), getattr(self._plan._row.plan.overlap, axis))

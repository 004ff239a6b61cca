"""PlanCache: a function of a plan, evaluated once per combination of the plan fields that it reads.

Nobody lists the fields: the function is given a plan that notes what is read of it, and what it read, in the order in which it
did, is a path in a decision tree whose leaf holds the value. Another plan with the same answers along a path has the same
value, since the function could not tell the two apart. So a cached value cannot be another plan's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ...plan.plan import ParallelPlan
from .table import Column, PlanTable, distinct

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
        self._seen: dict[tuple[Read, ...], dict[tuple[Any, ...], int]] = {}  # answers to these reads -> leaf
        self.values: list[T] = []

    def look_up(self, table: PlanTable) -> tuple[list[T], Rows]:
        """Distinct values, and which of them every plan of the table has."""
        columns: dict[Read, Column | Any] = {}
        while True:
            columns |= {read: table.read(read) for read in self._reads if read not in columns}
            first, which = _distinct_rows(columns, len(table))
            leaves = self._leaves(table, columns, first)
            if len(columns) == len(self._reads):
                used, at = np.unique(leaves, return_inverse=True)
                return [self.values[leaf] for leaf in used.tolist()], at[which]

    def _leaves(self, table: PlanTable, columns: Mapping[Read, Column | Any], rows: Rows) -> Rows:
        """[row] number of the value of some plans; values that are new are made."""
        if not columns:
            return np.array([self._add(PlanRow(table, row)) for row in rows.tolist()], dtype=np.intp)
        answers = zip(
            *(
                column[rows].tolist() if isinstance(column, np.ndarray) else repeat(column, len(rows))
                for column in columns.values()
            ),
            strict=True,
        )
        seen = self._seen.setdefault(tuple(columns), {})
        leaves = []
        for key, row in zip(answers, rows.tolist(), strict=True):
            leaf = seen.get(key, -1)
            if leaf < 0:
                leaf = seen[key] = self._leaf(PlanRow(table, row), dict(zip(columns, key, strict=True)))
            leaves.append(leaf)
        return np.array(leaves, dtype=np.intp)

    def _leaf(self, plan: PlanRow, answers: Mapping[Read, Any]) -> int:
        """Number of the value of one plan, by the path of its answers."""
        node: _Node[T] | None = self._root
        while node is not None and node.read is not None:
            read = node.read
            node = node.children.get(answers[read] if read in answers else plan.read(read))
        return node.leaf if node is not None and node.leaf >= 0 else self._add(plan)

    def of(self, plan: ParallelPlan) -> T:
        """Value of a plan inside the function of another cache, whose path goes on with what is read here."""
        outer = cast(_Noted, plan)
        node: _Node[T] | None = self._root
        while node is not None and node.read is not None:
            outer.reads.setdefault(node.read)
            node = node.children.get(outer.row.read(node.read))
        if node is not None and node.leaf >= 0:
            return self.values[node.leaf]
        leaf = self._add(outer.row)
        for read in self._path(outer.row):
            outer.reads.setdefault(read)
        return self.values[leaf]

    def _path(self, plan: PlanRow) -> Iterator[Read]:
        """What is read of a plan that is known."""
        node = self._root
        while node.read is not None:
            yield node.read
            node = node.children[plan.read(node.read)]

    def _add(self, plan: PlanRow) -> int:
        """Number of the value of a plan, made unless an equal plan was asked for a moment ago."""
        noted = _Noted(plan)
        value = self._make(cast(ParallelPlan, noted))
        node = self._root
        for read in noted.reads:
            node.read = read
            node = node.children.setdefault(plan.read(read), _Node())
            self._reads.setdefault(read)
        if node.leaf < 0:
            node.leaf = len(self.values)
            self.values.append(value)
        return node.leaf


def _distinct_rows(columns: Mapping[Read, Column | Any], n_plan: int) -> tuple[Rows, Rows]:
    """Rows that stand for each distinct combination of the columns, and every plan's combination."""
    varying = [column for column in columns.values() if isinstance(column, np.ndarray)]
    return distinct(*varying) if varying else (np.zeros(1, np.intp), np.zeros(n_plan, np.intp))


class PlanRow:
    """One plan of a table: answers by what is read, and the plan itself."""

    def __init__(self, table: PlanTable, row: int) -> None:
        self._table, self._row = table, row
        self._plan: ParallelPlan | None = None

    def read(self, read: Read) -> Any:
        """A hashable answer: the entry of a column, or what all plans of the table share."""
        name, *arguments = read
        if arguments:
            return self.plan.stride(arguments[0])
        if name in PlanTable.DERIVED:
            return getattr(self.plan, name)
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
        self.row = row
        self.reads: dict[Read, None] = {}

    def __getattr__(self, name: str) -> Any:
        plan = self.row.plan
        if name == "overlap":
            value: Any = _NotedOverlap(self)
        elif name in PlanTable.DERIVED or name in plan.__dataclass_fields__:
            self.reads.setdefault((name,))
            value = getattr(plan, name)
        else:
            value = getattr(type(plan), name).__get__(self)
        setattr(self, name, value)  # what was read once is at hand from then on
        return value

    def stride(self, axis: str) -> int:
        """As `ParallelPlan.stride`."""
        self.reads.setdefault(("stride", axis))
        return self.row.plan.stride(axis)


class _NotedOverlap:
    """`ParallelPlan.overlap` of a noted plan."""

    def __init__(self, plan: _Noted) -> None:
        self._plan = plan

    def __getattr__(self, axis: str) -> bool:
        self._plan.reads.setdefault((f"overlap_{axis}",))
        return getattr(self._plan.row.plan.overlap, axis)

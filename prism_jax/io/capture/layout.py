"""The file of a captured program: lines of JSON, packed with gzip, every line one object.

    {"capture": 1, "name": ..., "world": ..., "axes": {...}, ...}      first line: the program
    {"class": "stage 0", "n_ranks": 8, "stage": 0, ...}                 a class of ranks, followed by its rows
    {"op": "aten::mm", "kind": "gemm", "phase": "F", ...}
    {"comm": "all_reduce", "axis": "tp", "phase": "F", ...}

Fields are those of the dataclasses; what has its default is left out. Unknown fields, fields of another type and versions of the
layout that this program does not know are refused.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any

from ...workload.captured.program import RankClass, RankProgram
from ...workload.captured.rows import CapturedComm, CapturedOp

VERSION = 1
ENDING = ".capture.gz"
HEAD, CLASS, OP, COMM = "capture", "class", "op", "comm"
TITLES = {OP: "name", COMM: "collective", CLASS: "name"}  # field that stands under the key that says what the line is
TYPES: dict[str, type] = {HEAD: RankProgram, CLASS: RankClass, OP: CapturedOp, COMM: CapturedComm}
RETIRED = {CLASS: ("host_ops",)}  # fields of older files that nothing reads
OWN_LINES = ("classes", "rows")  # fields that are lines of their own
MOST_BYTES = 256 << 20  # unpacked
MOST_LINE_BYTES = 1 << 20
REMEDY = "Name a file that `prism-jax capture` wrote."


def written_fields(of: type) -> tuple[Field[Any], ...]:
    """Fields of a dataclass that stand in its own line."""
    return tuple(item for item in fields(of) if item.name not in OWN_LINES)


def is_default(item: Field[Any], value: Any) -> bool:
    """Whether a field may be left out."""
    if item.default is not MISSING:
        return value == item.default
    return item.default_factory is not MISSING and value == item.default_factory()

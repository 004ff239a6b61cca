"""Captured programs: training steps read off their own code, one rank of every kind; see docs/design.md and docs/capture.md."""

from .check import check_program as check_program
from .program import FUSIONS as FUSIONS, RankClass as RankClass, RankProgram as RankProgram, Repeat as Repeat
from .rows import CapturedComm as CapturedComm, CapturedOp as CapturedOp, CapturedRow as CapturedRow

"""HLO text -> modules: lines taken apart within bounds, and the files that hold them."""

from .parse import parse_hlo as parse_hlo
from .read import MOST_BYTES as MOST_BYTES, is_hlo as is_hlo, read_hlo as read_hlo
from .types import (
    DTYPES as DTYPES,
    Computation as Computation,
    Instruction as Instruction,
    Module as Module,
    Shape as Shape,
)

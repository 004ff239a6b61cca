"""HLO, the language that XLA compiles: its text read into captured programs; pure Python, since the text is untrusted."""

from .program import Stated as Stated, rank_program as rank_program
from .text import (
    MOST_BYTES as MOST_BYTES,
    Module as Module,
    is_hlo as is_hlo,
    parse_hlo as parse_hlo,
    read_hlo as read_hlo,
)

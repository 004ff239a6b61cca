"""Kinds of broken traces: how to make each, and what the one message about it must say. Nothing in them is from a real job.

A module is the kinds of one sort of file; importing it adds them to `BROKEN`.
"""

from tests.support.files.broken import Broken as Broken

from . import csv_tables as csv_tables, metadata as metadata, packed as packed, scalars as scalars
from .kinds import BROKEN as BROKEN, GOOD_ROW as GOOD_ROW, HEADER as HEADER
from .kineto import kineto as kineto
from .logs import MEGATRON as MEGATRON, mllog_line as mllog_line
from .parquet import straggler as straggler

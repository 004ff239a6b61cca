"""Programs of XLA for CPUs, taken apart into single operations, so that those that one kernel of a GPU does are found anew."""

from .flattened import Flattened as Flattened
from .rows import row_of as row_of

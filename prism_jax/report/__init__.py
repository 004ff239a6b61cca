"""Predictions as plain data and as lines of text. Prints nothing.

Names are imported when they are used: reports on jobs need what `explain` needs, reports on traces do without JAX.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .lines import summary_lines as summary_lines
    from .place_lines import placement_lines as placement_lines
    from .search_lines import size_lines as size_lines, study_lines as study_lines
    from .summary import summary_dict as summary_dict

_HOME = {
    "placement_lines": "place_lines",
    "size_lines": "search_lines",
    "study_lines": "search_lines",
    "summary_dict": "summary",
    "summary_lines": "lines",
}

__getattr__, __dir__ = lazy_names(__name__, _HOME)

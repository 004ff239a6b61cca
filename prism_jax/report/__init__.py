"""Predictions as plain data and as lines of text. Prints nothing."""

from .lines import summary_lines as summary_lines
from .summary import summary_dict as summary_dict

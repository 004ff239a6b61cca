"""Predicted against measured step times: errors, intervals and reasons per row, by source and overall."""

from .groups import GROUPS as GROUPS, group_of as group_of
from .rows import MeasuredRow as MeasuredRow, RowResult as RowResult
from .score import Score as Score, Validation as Validation, validation_of as validation_of
from .steps import validate_steps as validate_steps
from .typical import job_of_row as job_of_row, typical_s as typical_s

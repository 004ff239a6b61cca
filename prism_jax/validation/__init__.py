"""Predicted against measured step times: errors, intervals and reasons per row, by source and overall."""

from .costed import CostedJob as CostedJob, costed as costed, job_of_row as job_of_row
from .groups import GROUPS as GROUPS, group_of as group_of
from .interval import intervals as intervals
from .rows import MeasuredRow as MeasuredRow, RowResult as RowResult
from .score import Score as Score, Validation as Validation, validation_of as validation_of
from .steps import validate_steps as validate_steps
from .typical import Steps as Steps, step_times as step_times

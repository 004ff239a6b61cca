"""`STEP_LOGS`: files that hold step times and no ops. Asked in turn, the last one first."""

from __future__ import annotations

from .mllog import MLLOG
from .scalars.event_file import EVENT_FILE
from .scalars.json_lines import JSON_LINES
from .scalars.table import STEP_TABLE
from .scalars.trainer_state import TRAINER_STATE
from .text.read import TEXT_LOG

OF_SCALARS = (STEP_TABLE, JSON_LINES, TRAINER_STATE, EVENT_FILE)
STEP_LOGS = (TEXT_LOG, MLLOG, *OF_SCALARS)  # any text that nobody else claims is a text log

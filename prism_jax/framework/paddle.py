"""PaddleNLP."""

from __future__ import annotations

from .base import FUSED, Framework
from .recognition import by_name, in_notes

PADDLE = Framework("paddle", "PaddleNLP", FUSED, patterns=(in_notes(r"paddlenlp", 30), *by_name(r"paddle", 60)))

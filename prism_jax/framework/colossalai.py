"""Colossal-AI."""

from __future__ import annotations

from .base import EAGER, Framework
from .recognition import by_name

COLOSSALAI = Framework("colossalai", "Colossal-AI", EAGER, patterns=by_name(r"colossal-?ai", 40))

"""Writes values as YAML on one line."""

from __future__ import annotations

from typing import Any

import yaml


def flow(value: Any) -> str:
    """A value on one line, as `read_yaml` reads it back."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")

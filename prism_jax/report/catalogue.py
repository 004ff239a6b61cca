"""The reports that ship with the package, and their published schemas."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from .._core.registry import Registry
from ..errors import SpecError
from .report import Report
from .schema import json_schema

PACKAGE = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).resolve().parent / "schemas"


def _shipped() -> list[type[Report]]:
    found: list[type[Report]] = []
    for file in sorted(PACKAGE.rglob("*report.py")):  # `report.py` of a capability, `prediction_report.py`, ...
        module = import_module(".".join((PACKAGE.name, *file.relative_to(PACKAGE).with_suffix("").parts)))
        own = (
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, Report) and kind is not Report
        )
        found += [kind for kind in own if kind.__module__ == module.__name__]
    return sorted(found, key=lambda kind: kind.kind)


REPORTS: Registry[type[Report]] = Registry("report", _shipped, name_of=lambda kind: kind.kind, error=SpecError)


def schema_file(kind: type[Report]) -> Path:
    """Where the schema of a report lies in the package."""
    return FOLDER / f"{kind.kind}-{kind.version}.json"


def published_schema(name: str) -> dict[str, Any]:
    """JSON schema of the report called `name`: the file of the package, or made from the type of a report that a caller added.

    Raises:
        SpecError: there is no such report.

    Example:
        >>> published_schema("prediction")["title"]
        'prism-jax/prediction/1'
    """
    kind = REPORTS.named(name)
    file = schema_file(kind)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else json_schema(kind)

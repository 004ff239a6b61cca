"""The reports that ship with the package, and their published schemas.

`python -m prism_jax.show.reports` writes the JSON schemas of all reports into the package; run it when a type changes.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from ..core.errors import DataError, SpecError
from ..core.registry import Registry
from ..core.report import SCHEMA, Report, json_schema

PACKAGE = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).resolve().parent / "schemas"
REMEDY = "Give a file that a command wrote with --json or -o."


def _shipped() -> list[type[Report]]:
    found: list[type[Report]] = []
    for file in sorted(PACKAGE.rglob("*report.py")):  # `report.py` of a capability, or a file beside it
        module = import_module(".".join((PACKAGE.name, *file.relative_to(PACKAGE).with_suffix("").parts)))
        own = (
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, Report) and kind is not Report
        )
        found += [kind for kind in own if kind.__module__ == module.__name__]
    return sorted(found, key=lambda kind: kind.kind)


REPORTS: Registry[type[Report]] = Registry("report", _shipped, name_of=lambda kind: kind.kind, error=SpecError)


def report_of(data: Any, name: str = "") -> Report:
    """The report of JSON data, of whatever kind.

    Args:
        name: of the file, for errors.

    Raises:
        DataError: no report, of a kind or version that this package does not know, or damaged.
    """
    place = f"{name}: " if name else ""
    schema = data.get(SCHEMA) if isinstance(data, dict) else None
    if not isinstance(schema, str) or schema.count("/") != 2:
        raise DataError(
            f'{place}no report of prism-jax: it has no "{SCHEMA}" such as "prism-jax/prediction/1". {REMEDY}'
        )
    _, kind, version = schema.split("/")
    if kind not in REPORTS:
        raise DataError(f"{place}schema {schema}: this version of prism-jax knows no such report. Use a later one.")
    own = REPORTS.named(kind)
    if version != str(own.version):
        later = version.isdigit() and int(version) > own.version
        remedy = "Open it with a later version" if later else "Open it with the version that wrote it"
        wrote = ((data.get("record") or {}).get("versions") or {}).get("prism-jax", "")
        raise DataError(
            f"{place}schema {schema}, but this version reads {own.schema()}. {remedy}{wrote and f', {wrote}'}."
        )
    try:
        return own.from_dict(data)
    except DataError as error:
        raise DataError(f"{place}{error}") from None


def schema_file(kind: type[Report]) -> Path:
    """Place of the schema of a report in the package."""
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


def schema_text(kind: type[Report]) -> str:
    """Text of the file that publishes the schema of a report."""
    return json.dumps(json_schema(kind), indent=1, ensure_ascii=False) + "\n"


def publish(folder: Path = FOLDER) -> list[Path]:
    """Writes one file per report and returns their paths."""
    files = [folder / schema_file(kind).name for kind in REPORTS]
    for kind, file in zip(REPORTS, files, strict=True):
        file.write_text(schema_text(kind), encoding="utf-8")
    return files


if __name__ == "__main__":
    print("\n".join(str(file) for file in publish()))

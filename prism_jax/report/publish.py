"""`python -m prism_jax.report.publish` writes the JSON schemas of all reports into the package; run it when a type changes."""

from __future__ import annotations

import json
from pathlib import Path

from .catalogue import FOLDER, REPORTS, schema_file
from .report import Report
from .schema import json_schema


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

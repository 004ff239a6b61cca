"""Transcripts that are kept with the tests, and how they are made again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .inputs import write_inputs
from .transcript import play
from .worker import main_of

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "tests" / "golden"
TOLERANCE = 1e-4  # stored transcripts may come from another machine


def environment(checkout: Path = ROOT) -> dict[str, str]:
    """Returns variables that make a run repeatable: the width of tables, no colours, the processor."""
    return {
        "COLUMNS": "120",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "JAX_PLATFORMS": "cpu",
        "MPLBACKEND": "agg",
        "PYTHONPATH": str(checkout),
    }


def file_of(name: str) -> Path:
    """Returns where the transcript of a case is kept: one folder for each command."""
    command, _, rest = name.partition("/")
    return STORED / command / f"{rest}.txt"


def write_transcript(text: str, path: Path) -> None:
    """Writes a transcript, and the folder that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def recorded(cases: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Returns brief transcripts of this checkout."""
    os.environ.update(environment())
    main = main_of(ROOT)
    found = {}
    with tempfile.TemporaryDirectory(prefix="golden-inputs-") as inputs:
        write_inputs(Path(inputs))
        for name, commands in cases.items():
            with tempfile.TemporaryDirectory(prefix="golden-") as folder:
                found[name] = play(commands, Path(inputs), Path(folder), main, ROOT, brief=True)
    return found

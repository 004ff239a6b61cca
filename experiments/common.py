"""What the experiments share: how they start, and how their figures are compared with `expected.json`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from threadpoolctl import threadpool_limits

from prism_jax.core.processes import start_jax

TOLERANCE = 0.004  # of a share: other draws, other libraries
Figures = Mapping[str, Mapping[str, float]]


def start() -> None:
    """One thread for linear algebra unless the user says otherwise, and JAX as the command line starts it.

    Call it before the first computation.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"  # for libraries loaded later, and processes started later
        threadpool_limits(1)
    start_jax()


def run_parts(about: str | None, parts: Mapping[str, Callable[[Path], object]], data: Path | None = None) -> None:
    """Reads `--data FOLDER [--only PART]` and calls the parts that are asked for with the folder.

    Args:
        about: text of `--help`.
        parts: name -> what prints its figures.
        data: folder where none is stated; None: one must be.
    """
    options = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, default=data, required=data is None)
    options.add_argument("--only", choices=tuple(parts))
    chosen = options.parse_args()
    start()
    for name, part in parts.items():
        if chosen.only in (None, name):
            part(chosen.data)


def moved(found: Figures, file: Path, tolerances: Mapping[str, float] | None = None) -> list[str]:
    """What is not as `file` expects it, in words.

    Args:
        found: row -> name of a figure -> its value.
        file: JSON of the same form.
        tolerances: name of a figure -> the largest absolute difference; `TOLERANCE` for the others.
    """
    expected: Figures = json.loads(file.read_text(encoding="utf-8"))
    lines = []
    for row, figures in found.items():
        for name, value in figures.items():
            known = expected.get(row, {}).get(name)
            if known is None:
                lines.append(f"{row} {name}: {value:.4f}, not expected")
            elif abs(value - known) > (tolerances or {}).get(name, TOLERANCE):
                lines.append(f"{row} {name}: {value:.4f}, expected {known:.4f}")
    return lines


def check(found: Figures, file: Path, tolerances: Mapping[str, float] | None = None) -> int:
    """Prints what has moved; returns the exit code, 1 where anything has."""
    lines = moved(found, file, tolerances)
    print("\n".join(lines) or "as expected")
    return int(bool(lines))


def keep(found: Figures, file: Path) -> None:
    """Writes figures into `file`; rows that are not among them stay."""
    file.write_text(json.dumps(known(file) | dict(found), indent=1) + "\n", encoding="utf-8")


def check_or_keep(found: Figures, file: Path, is_check: bool, tolerances: Mapping[str, float] | None = None) -> int:
    """Compares figures with `file` where `--check` asks for it, else writes them into it; returns the exit code."""
    if is_check:
        return check(found, file, tolerances)
    keep(found, file)
    return 0


def known(file: Path) -> dict[str, dict[str, float]]:
    """What `file` holds; nothing if it does not exist."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

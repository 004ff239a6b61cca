"""Reads the heads of the open logs, and holds fields, runs, steps and predictions against what is known of them.

    python -m experiments.log_heads.run [--logs ../shared/data/logs] [--slower 5] [NAME...]

Prints for every log its three lines; then, over all: the share of head fields that equal truth.json, runs per file, medians
within 0.5% of `step_s_case`, and how many are inside of their interval. `--slower 5` multiplies all measured steps, which is to
be called sick.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prism_jax.core.errors import PrismError
from prism_jax.launch.head import runs_of
from prism_jax.launch.read_heads import read_heads
from prism_jax.validation.log_report import LogRun
from prism_jax.validation.validate_log import runs_in

from .compare import fields, same

LOGS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "logs"
CLOSE = 0.005


@dataclass
class Outcome:
    """What one log came to.

    Attributes:
        right, wrong: fields that the head states.
        unsaid: fields that it does not state: the log was cut, or names them nowhere.
        runs: that were found, and how many there are.
        error: of the median step, relative; None: not read.
        verdicts: of the runs.
    """

    name: str
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    unsaid: list[str] = field(default_factory=list)
    runs: tuple[int, int] = (0, 0)
    error: float | None = None
    verdicts: tuple[str, ...] = ()


def outcome(folder: Path, slower: float = 1.0) -> tuple[Outcome, Sequence[LogRun]]:
    """What the log of a folder comes to, its device given where the head has none."""
    truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())
    found = Outcome(folder.name)
    path = folder / "train.log"
    heads = list(runs_of(read_heads(path)))
    device = None if heads and "gpu" in heads[0].facts else truth["gpu"]
    runs = runs_in(path, device=device, slower=slower)
    case = truth["step_s_case"]["median"]
    with_steps = [run for run in runs if run.measured is not None]
    if with_steps and with_steps[0].measured is not None:
        found.error = with_steps[0].measured.median_s / slower / case - 1.0
    found.runs = len(with_steps), truth["steps"]["runs_in_file"]
    found.verdicts = tuple(run.verdict for run in runs)
    for name, wanted, read in fields(truth, runs[0]) if runs else ():
        if same(name, wanted, read):
            found.right += 1
        elif read is None:
            found.unsaid.append(name)
        else:
            found.wrong.append(f"{name}: {read}, but {wanted}")
    return found, runs


def main() -> None:
    """Prints everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--logs", type=Path, default=LOGS)
    parser.add_argument("--slower", type=float, default=1.0)
    given = parser.parse_args()
    every = []
    for folder in sorted(one for one in given.logs.iterdir() if (one / "truth.json").exists()):
        if given.names and folder.name not in given.names:
            continue
        print(f"\n== {folder.name}")
        try:
            found, runs = outcome(folder, given.slower)
        except PrismError as error:
            found, runs = Outcome(folder.name), ()
            print(f"   {error}")
        every.append(found)
        for run in runs:
            print(*(f"   {name}: {text}" for name, text in run.facts.items()), sep="\n")
        for text in found.wrong:
            print(f"   WRONG {text}")
        if found.unsaid:
            print(f"   not said: {', '.join(found.unsaid)}")
        error = "not read" if found.error is None else f"{found.error:+.2%}"
        print(f"   fields {found.right} of {found.right + len(found.wrong)}, runs {found.runs}, median {error}")
    right, n = sum(one.right for one in every), sum(one.right + len(one.wrong) for one in every)
    unsaid = sum(len(one.unsaid) for one in every)
    print(
        f"\nfields right: {right} of {n} that heads state ({right / max(n, 1):.1%}); {unsaid} more are not in the logs"
    )
    print(f"runs right: {sum(one.runs[0] == one.runs[1] for one in every)} of {len(every)}")
    close = sum(one.error is not None and abs(one.error) <= CLOSE for one in every)
    print(f"medians within {CLOSE:.1%}: {close} of {len(every)}")
    for word in ("inside", "outside", "sick", "no job", "no steps"):
        print(f"{word}: {', '.join(one.name for one in every if one.verdicts[:1] == (word,)) or '-'}")


if __name__ == "__main__":
    main()

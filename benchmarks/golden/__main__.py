"""The golden gate: does a change keep what every command prints and writes?

    python -m benchmarks.golden compare OLD NEW [--tolerance 1e-4] [--only 'fit*'] [--workers 1]
    python -m benchmarks.golden record [--only 'fit*']

`compare` runs all cases of `cases.py` with two revisions, each a folder or a git revision, side by side on this machine, and
exits with 1 if anything differs: text, JSON, files or exit codes. Numbers must be equal, or within `--tolerance`. `record` writes
what the cheap and portable cases give now to tests/golden; `tests/test_golden.py` compares the code of the day with that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path

from .cases import CASES, INTENDED, stored_cases
from .checkout import checkout_of
from .differences import differing_lines
from .inputs import write_inputs
from .stored import ROOT, environment, file_of, recorded, write_transcript

Cases = Mapping[str, Sequence[str]]


def main(given: Sequence[str] | None = None) -> int:
    """Compares two revisions, or records this one; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.golden", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    pair = commands.add_parser("compare", help="two revisions on this machine")
    pair.add_argument("old", metavar="OLD", help="a folder or a git revision")
    pair.add_argument("new", metavar="NEW", help="a folder or a git revision")
    pair.add_argument("--tolerance", type=float, default=0.0, help="relative difference of numbers; 0: exact")
    pair.add_argument("--workers", type=int, default=1, help="processes for each revision")
    pair.add_argument("--keep", type=Path, metavar="FOLDER", help="write all transcripts there, under old and new")
    store = commands.add_parser("record", help="renew tests/golden")
    for each in (pair, store):
        each.add_argument("--only", default="*", metavar="PATTERN", help="names of cases")
    chosen = parser.parse_args(given)
    if chosen.command == "record":
        cases = _named(stored_cases(), chosen.only)
        for name, text in recorded(cases).items():
            write_transcript(text, file_of(name))
        print(f"{len(cases)} cases recorded")
        return 0
    return _compare(_named(CASES, chosen.only), chosen.old, chosen.new, chosen.tolerance, chosen.workers, chosen.keep)


def _named(cases: Cases, pattern: str) -> dict[str, Sequence[str]]:
    return {name: commands for name, commands in cases.items() if fnmatch(name, pattern)}


def _compare(cases: Cases, old: str, new: str, tolerance: float, n_workers: int, keep: Path | None) -> int:
    with ExitStack() as stack:
        inputs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="golden-inputs-")))
        write_inputs(inputs)
        folders = [stack.enter_context(checkout_of(revision)) for revision in (old, new)]
        running = [_started(cases, folder, inputs, n_workers) for folder in folders]
        before, after = ([line for process in each for line in _results(process)] for each in running)
    texts = [{one["name"]: one["text"] for one in each} for each in (before, after)]
    for side, found in zip(("old", "new"), texts if keep else (), strict=False):
        for name, text in found.items():
            write_transcript(text, Path(keep or ".", side, f"{name}.txt"))
    n_differ = n_intended = 0
    for name in cases:
        lines = differing_lines(
            texts[0].get(name, "old: no transcript"), texts[1].get(name, "new: no transcript"), tolerance
        )
        if lines and name in INTENDED:
            n_intended += 1
            print(f"--- {name}: as intended: {INTENDED[name]}")
        elif lines:
            n_differ += 1
            print(f"--- {name}", *lines, sep="\n")
    for one in sorted(after, key=lambda one: -one["cpu_s"])[:10]:
        print(f"{one['cpu_s']:8.1f} s  {one['name']}")
    print(f"processor seconds: {sum(one['cpu_s'] for one in before):.0f} and {sum(one['cpu_s'] for one in after):.0f}")
    print(f"{len(cases)} cases, {n_differ} differ, {n_intended} more as intended")
    return int(n_differ > 0)


def _started(cases: Cases, checkout: Path, inputs: Path, n_workers: int) -> list[subprocess.Popen[str]]:
    names = list(cases)
    started = []
    for index in range(n_workers):
        output = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  read when the process has ended
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.golden.worker", str(checkout), str(inputs)],
            cwd=ROOT,
            env={**os.environ, **environment(checkout)},
            stdin=subprocess.PIPE,
            stdout=output,
            text=True,
        )
        assert process.stdin is not None
        json.dump({name: cases[name] for name in names[index::n_workers]}, process.stdin)
        process.stdin.close()
        process.stdout = output  # pyright: ignore[reportAttributeAccessIssue]
        started.append(process)
    return started


def _results(process: subprocess.Popen[str]) -> list[dict]:
    """What a worker wrote until it ended."""
    process.wait()
    assert process.stdout is not None
    process.stdout.seek(0)
    return [json.loads(line) for line in process.stdout.read().splitlines() if line.startswith("{")]


if __name__ == "__main__":
    sys.exit(main())

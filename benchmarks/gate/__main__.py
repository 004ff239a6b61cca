"""What a change moves: some 1,000 made-up jobs predicted and compared with the predictions that were committed.

python -m benchmarks.gate [--write] [--fail-above PERCENT] [--one-of N] [--expected CSV]

`--write` renews the file. `--fail-above 0.5` exits with 1 if a median or a bound moved by more than 0.5%, or if jobs came or
went.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .jobs import ONE_OF, gate_jobs
from .moved import compare, lines
from .predicted import EXPECTED, predictions, read, write


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew the expected file")
    parser.add_argument("--fail-above", type=float, metavar="PERCENT", help="exit 1 if anything moved by more")
    parser.add_argument("--one-of", type=int, default=ONE_OF, metavar="N", help=f"a multiple of {ONE_OF}: fewer jobs")
    parser.add_argument("--expected", type=Path, default=EXPECTED, metavar="CSV")
    chosen = parser.parse_args(given)
    if chosen.one_of < 1 or chosen.one_of % ONE_OF:
        parser.error(f"--one-of {chosen.one_of}: it must be a multiple of {ONE_OF}")
    if not chosen.write and not chosen.expected.exists():
        parser.error(f"{chosen.expected} does not exist. Write it with --write.")
    jobs = gate_jobs(chosen.one_of)
    now = predictions(jobs)
    before = read(chosen.expected) if chosen.expected.exists() else {}
    found = compare(jobs, now, before, is_whole=chosen.one_of == ONE_OF)
    print("\n".join(lines(found)))
    if chosen.write:
        write(now, chosen.expected)
    return int(chosen.fail_above is not None and found.exceeds(chosen.fail_above / 100.0))


if __name__ == "__main__":
    sys.exit(main())

"""Which cases of tests only `make test-slow` runs: writes `tests/slow_tests.txt` from the times of a run of all tests.

    make test-slow PYTEST_FLAGS="-n 2 --dist loadfile --junitxml=times.xml"
    python scripts/slow_tests.py times.xml

Cases of more than `--most` seconds are slow, but every test function keeps its shortest case unless that, too, takes more than
`--longest` seconds: each statement is still tried, at fewer settings. Damaged files are tried on every reader in any case.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "slow_tests.txt"
NEVER = re.compile(r"^tests/fuzz/|[\[-]/")  # readers; cases named after a folder of one machine


def times(report: Path) -> dict[str, float]:
    """Seconds of every case that ran, by node id."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = ROOT / (case.get("classname", "").replace(".", "/") + ".py")
        if file.exists() and case.find("skipped") is None:
            found[f"{file.relative_to(ROOT)}::{case.get('name')}"] = float(case.get("time", 0.0))
    return found


def slow(seconds: Mapping[str, float], most: float, longest: float) -> list[str]:
    """Cases that only `make test-slow` runs; see the module."""
    functions: dict[str, list[str]] = defaultdict(list)
    for case in sorted(seconds, key=lambda case: seconds[case]):
        functions[case.partition("[")[0]].append(case)
    kept = {cases[0] for cases in functions.values() if seconds[cases[0]] <= longest}
    return sorted(case for case in set(seconds) - kept if seconds[case] > most and not NEVER.search(case))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="what pytest --junitxml wrote")
    parser.add_argument("--most", type=float, default=5.0)
    parser.add_argument("--longest", type=float, default=45.0)
    asked = parser.parse_args()
    seconds = times(asked.report)
    found = slow(seconds, asked.most, asked.longest)
    LIST.write_text("".join(f"{case}\n" for case in found), encoding="utf-8")
    part = sum(seconds[case] for case in found)
    print(f"{len(found)} of {len(seconds)} cases are slow: {part:.0f} of {sum(seconds.values()):.0f} s")


if __name__ == "__main__":
    main()

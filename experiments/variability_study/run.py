"""How variable GPUs and steps are: recomputes every figure of README.md, the pictures, and `expected.json`.

    python experiments/variability_study/run.py [--data ../shared/data] [--only 1 2 3 4 5] [--splits 20] [--no-fleet] [--check]

`expected.json` holds per figure its value, the ends of its interval and the tolerance within which another machine
finds it again; `--check` compares instead of writing and exits with 1 where a figure has moved.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from experiments.variability_study import clock, families, gpu_spread, levels, step_scale

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json"
DPI = 90
TITLES = {
    1: "How variable are GPUs?",
    2: "Chip, node or run?",
    3: "Does it come from the clock?",
    4: "What grows with scale?",
    5: "Which family fits?",
}
# Relative and absolute tolerance. Plain statistics: rounding of other libraries. Fits: another seed's draws.
TOLERANCE = {1: (1e-3, 1e-5), 2: (0.02, 0.003), 3: (0.02, 0.01), 4: (1e-3, 1e-6), 5: (0.02, 0.004)}
Found = dict[str, tuple[float, float, float]]


def sections(args: argparse.Namespace) -> dict[int, tuple[str, Callable[[], tuple[Found, Figure]]]]:
    """Number -> name of the picture, and what computes it."""
    return {
        1: ("gpus", lambda: gpu_spread.study(args.data)),
        2: ("levels", lambda: levels.study(args.data, args.keep)),
        3: ("clock", lambda: clock.study(args.data, args.keep)),
        4: ("scale", lambda: step_scale.study(args.data)),
        5: ("families", lambda: families.study(args.data, args.splits, fleet=not args.no_fleet)),
    }


def record(number: int, found: Found) -> dict[str, dict[str, float]]:
    """As `expected.json` has it."""
    relative, absolute = TOLERANCE[number]
    return {
        name: {
            "value": float(f"{value:.4g}"),
            "low": float(f"{low:.4g}"),
            "high": float(f"{high:.4g}"),
            "tolerance": float(f"{relative * abs(value) + absolute:.2g}"),
        }
        for name, (value, low, high) in found.items()
    }


def moved(expected: dict[str, dict[str, float]], found: Found) -> list[str]:
    """What is not as expected, in words."""
    lines = []
    for name, known in expected.items():
        if name not in found:
            lines.append(f"{name}: not computed")
        elif not abs(found[name][0] - known["value"]) <= known["tolerance"]:
            lines.append(f"{name}: {found[name][0]:.4g}, expected {known['value']:.4g} +- {known['tolerance']:.2g}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / ".." / "shared" / "data")
    parser.add_argument("--only", type=int, nargs="+", choices=sorted(TITLES), default=sorted(TITLES))
    parser.add_argument("--splits", type=int, default=families.N_SPLIT, help="random halves of GPUs in section 5")
    parser.add_argument(
        "--no-fleet", action="store_true", help="section 5 without the fleet model, whose fits take minutes"
    )
    parser.add_argument(
        "--keep", type=Path, help="folder in which the fits of sections 2 and 3 are kept and found again"
    )
    parser.add_argument("--check", action="store_true", help="compare with expected.json; write nothing")
    args = parser.parse_args()
    known = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    wrong = []
    for number in sorted(set(args.only)):
        name, compute = sections(args)[number]
        print(f"{number}. {TITLES[number]}", flush=True)
        started = time.perf_counter()
        found, figure = compute()
        for key, (value, low, high) in found.items():
            print(f"  {key:58s} {value:10.4g}  [{low:.4g}, {high:.4g}]")
        print(f"  {time.perf_counter() - started:.0f} s", flush=True)
        if args.check:
            wrong += [f"{number}. {line}" for line in moved(known.get(name, {}), found)]
            continue
        figure.savefig(HERE / f"{name}.png", dpi=DPI)
        known[name] = record(number, found)
        ordered = {title: known[title] for title, _ in sections(args).values() if title in known}
        EXPECTED.write_text(json.dumps(ordered, indent=1) + "\n")
    print("\n".join(wrong) or "done")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Effects of single kernels and switches: measured pairs of runs that differ in software alone, against the predicted ratio.

python experiments/software_effects/run.py SCORES.json TABLE... [--json]

SCORES.json is what `python -m experiments.score_steps TABLE... --leave-out source --json` printed for the same tables: every row
is predicted by a calibration that has not seen its source. A pair is two rows of one source with the same model, cluster and plan
and other software. The trivial prediction is that software changes nothing.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from experiments.step_tables.table import read_step_rows
from inference.cost_model.calibrate import usable
from prism_jax.framework.software import SOFTWARE_VALUES, Software
from prism_jax.validation.score import MeasuredRow

BEYOND = 0.03  # ratios nearer to one than this have no sign worth scoring
FEW = 4  # pairs of a source below which its figures are not printed apart


@dataclass(frozen=True)
class Pair:
    """Two runs that differ in software.

    Attributes:
        switched: the fields that differ, with both values.
        measured, predicted: seconds with the second value over seconds with the first.
    """

    source: str
    switched: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured ratio, minus one."""
        return self.predicted / self.measured - 1.0

    @property
    def has_sign(self) -> bool:
        """Whether the effect is beyond what two runs of one job differ by."""
        return abs(self.measured - 1.0) > BEYOND

    @property
    def is_sign_right(self) -> bool:
        """Whether the prediction lies on the same side of one."""
        return (self.measured - 1.0) * (self.predicted - 1.0) > 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scores", type=Path)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = [row for table in given.tables for row in read_step_rows(table)]
    scores = json.loads(given.scores.read_text())["rows"]
    predicted = {(row["source"], row["id"]): row["predicted_s"] for row in scores}  # tables may share ids
    pairs = scored(rows, predicted)
    if given.json:
        print(json.dumps([asdict(pair) for pair in pairs], indent=1))
        return
    print(
        f"{'pairs':60s} {'n':>4s} {'median error':>13s} {'trivial':>8s} {'sign right':>11s} {'measured':>9s} {'predicted':>10s}"
    )
    by_source, by_switch = defaultdict(list), defaultdict(list)
    for pair in pairs:
        by_source[pair.source].append(pair)
        by_switch[pair.switched].append(pair)
    for name, own in (("all", pairs), *sorted(by_source.items()), *sorted(by_switch.items(), key=lambda x: -len(x[1]))):
        if len(own) >= FEW:
            _line(name, own)


def scored(rows: Sequence[MeasuredRow], predicted: Mapping[tuple[str, str], float | None]) -> list[Pair]:
    """All pairs.

    Args:
        predicted: seconds by source and id of a row.
    """
    found = [(a, b) for group in _alike(usable(rows)) for a, b in combinations(group, 2) if _one_thing(a, b)]
    pairs = []
    for one, other in found:
        before, after = (predicted.get((row.source, row.id)) for row in (one, other))
        if before and after and one.measured_s and other.measured_s:
            pairs.append(Pair(one.source, _switched(one, other), other.measured_s / one.measured_s, after / before))
    return pairs


def _alike(rows: Sequence[MeasuredRow]) -> Iterator[list[MeasuredRow]]:
    """Rows of one source, model, cluster and plan, whatever their software."""
    groups: dict[object, list[MeasuredRow]] = defaultdict(list)
    for row in rows:
        model, cluster, plan = row.job
        groups[row.source, row.framework, model, cluster.name, replace(plan, software=Software())].append(row)
    yield from (own for own in groups.values() if len(own) > 1)


def _one_thing(one: MeasuredRow, other: MeasuredRow) -> bool:
    """Whether one kernel, or one set of fusions, is switched: all differing fields go from apart to fused, or one differs."""
    names = _differing(one, other)
    return len(names) == 1 or (bool(names) and not {"attention", "compile"} & set(names))


def _differing(one: MeasuredRow, other: MeasuredRow) -> list[str]:
    a, b = one.job[2].software, other.job[2].software
    return [name for name in SOFTWARE_VALUES if getattr(a, name) != getattr(b, name)]


def _switched(one: MeasuredRow, other: MeasuredRow) -> str:
    a, b = one.job[2].software, other.job[2].software
    return ", ".join(f"{name} {getattr(a, name)} -> {getattr(b, name)}" for name in _differing(one, other))


def _line(name: str, pairs: Sequence[Pair]) -> None:
    errors = [abs(pair.error) for pair in pairs]
    trivial = [abs(1.0 / pair.measured - 1.0) for pair in pairs]
    signs = [pair.is_sign_right for pair in pairs if pair.has_sign]
    right = f"{np.mean(signs):10.0%}" if signs else " " * 9 + "-"
    means = [float(np.median([getattr(pair, what) for pair in pairs])) for what in ("measured", "predicted")]
    print(
        f"{name[:60]:60s} {len(pairs):4d} {np.median(errors):13.1%} {np.median(trivial):8.1%} {right:>11s} "
        f"{means[0]:9.3f} {means[1]:10.3f}"
    )


if __name__ == "__main__":
    main()

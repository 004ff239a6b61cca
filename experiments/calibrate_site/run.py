"""What one, three and five measured runs of a new site are worth: the error on its other runs, before and after `calibrate`.

python experiments/calibrate_site/run.py [--data ../shared/data] [--out JSON]

A site is a device generation and a framework of one source, in the version and by the method that its rows name, with 8 rows or
more. The population is fitted without any row of the source. Runs are picked by chance, and as `calibrate --suggest` picks them,
which looks at no measured time. Scores are those of the outline with stragglers, as the fit sees them.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from experiments.step_tables.table import read_step_rows
from inference.cost_model.calibrate import Calibrator, few_rows, row_data, usable, without
from inference.cost_model.site_density import calibrate_site
from inference.cost_model.site_fit import bands, errors, helps, left_out_errors
from inference.cost_model.site_runs import SiteRuns, kinds_of, some_of
from inference.cost_model.step_times import StepTimesData
from inference.cost_model.suggest import job_law
from prism_jax.calibration.calibration import Calibration, uncalibrated
from prism_jax.calibration.key import CalibrationKey
from prism_jax.calibration.surrogate import StepSurrogate
from prism_jax.tables.csv_rows import CsvTable, read_packed_text
from prism_jax.validation.costed import job_of_row
from prism_jax.validation.score import MeasuredRow

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
TABLES = ("steps/steps.csv.gz", "steps2/rows.csv.gz", "steps3/rows.csv.gz")
VERSION = ("software_release", "framework_version", "commit_or_version")  # the first that is stated
MOST = 40  # rows of a source
FEWEST = 8  # rows of a site
SIZES = (1, 3, 5)  # runs
N_CHANCE = 6  # choices of each
SMALL, WORSE = 0.08, 0.03  # errors that calibration must not make so much worse
N_DRAW = 96


@dataclass(frozen=True)
class Tried:
    """Runs that were not picked, of all choices: absolute errors and whether the 90% interval held each."""

    error: NDArray[np.float64]
    inside: NDArray[np.bool_]

    @property
    def record(self) -> tuple[float, float]:
        """Median error, coverage."""
        return round(float(np.median(self.error)), 4), round(float(self.inside.mean()), 4)


def read_rows(data: Path) -> tuple[list[MeasuredRow], list[str]]:
    """Thinned rows of the tables, and of each the version and method that it names."""
    rows, names = list[MeasuredRow](), list[str]()
    for table in TABLES:
        text = CsvTable(read_packed_text(data / table, "steps"), table)
        stated = {row["id"]: row for _, row in text.rows()}
        for row in usable(read_step_rows(data / table)):
            if not stated[row.id].get("exclude_from_score"):
                rows.append(row)
                names.append(_named(stated[row.id]))
    few = few_rows(rows, MOST)
    return [rows[at] for at in few], [names[at] for at in few]


def _named(row: Mapping[str, str]) -> str:
    version = next((text for column in VERSION if (text := row.get(column))), "")
    method = row.get("method") or "".join(re.findall(r"method=([^;]+)", row.get("other_features", "")))
    return f"{version} {method}".strip()


def runs_of(data: StepTimesData, settings: Sequence[CalibrationKey], rows: NDArray[np.intp]) -> SiteRuns:
    """The rows of a site as runs."""
    outline: dict[str, Any] = {item.name: getattr(data, item.name)[rows] for item in fields(StepSurrogate)}
    return SiteRuns(
        **outline,
        log_measured=data.log_measured[rows],
        left_out=(data.straggler + data.open_mean)[rows],
        has_experts=data.has_experts[rows],
        weight=np.ones(len(rows)),
        **kinds_of([settings[at] for at in rows]),
    )


def tried(before: Calibration, runs: SiteRuns, picks: Sequence[NDArray[np.intp]], key: jax.Array) -> Tried:
    """What every choice of runs says of the others; the population, where the chosen do not help each other."""
    error, inside = [], []
    for chosen in picks:
        seen, others = some_of(runs, chosen), some_of(runs, np.setdiff1d(np.arange(runs.n_run), chosen))
        used = helps(errors(before, seen), left_out_errors(before, seen, key=key))
        after = calibrate_site(before, seen, key=key) if used else before
        found = errors(after, others)
        low, high = bands(after, others)
        ratio = 1.0 / (1.0 + found)  # measured over predicted
        error.append(np.abs(found))
        inside.append((low <= ratio) & (ratio <= high))
    return Tried(np.concatenate(error), np.concatenate(inside))


def study(rows: Sequence[MeasuredRow], named: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Per site: median error and coverage before, and after so many runs by chance and as suggested."""
    key = jax.random.key(0)
    data = row_data(rows)
    jobs = [job_of_row(row, uncalibrated()) for row in rows]
    settings = [CalibrationKey.of(job.cluster.device, job.framework, job.plan.software, job.model) for job in jobs]
    source = np.array([row.source for row in rows])
    site = np.array(
        [
            f"{row.source} | {own.generation} | {own.framework} | {name}"
            for row, own, name in zip(rows, settings, named, strict=True)
        ]
    )
    names, count = np.unique(site, return_counts=True)
    calibrator, last, before = Calibrator(data), "", uncalibrated()
    for name in names[count >= FEWEST]:
        at = np.flatnonzero(site == name)
        if source[at[0]] != last:
            last = str(source[at[0]])
            before = calibrator.fit(without(data, source == last), key=key, n_draw=N_DRAW)
        runs = runs_of(data, settings, at)
        rng = np.random.default_rng(0)
        suggested = [job for job, _ in job_law(before, runs).best(SIZES[-1], range(runs.n_run))]
        record: dict[str, Any] = {"n": len(at), "before": tried(before, runs, [np.zeros(0, dtype=np.intp)], key).record}
        for n in SIZES:
            picks = [rng.permutation(runs.n_run)[:n] for _ in range(N_CHANCE)]
            record[f"{n} by chance"] = tried(before, runs, picks, key).record
            record[f"{n} suggested"] = tried(before, runs, [np.array(suggested[:n])], key).record
        yield str(name), record


def overall(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Over sites, each counting once: median and mean of the errors, mean coverage, small errors made much worse."""
    before = np.array([one["before"][0] for one in records])
    found: dict[str, Any] = {}
    for stage in [key for key in records[0] if key != "n"]:
        error, inside = np.array([one[stage] for one in records]).T
        spoiled = (before < SMALL) & (error > before + WORSE)
        figures = {
            "median": np.median(error),
            "mean": error.mean(),
            "coverage": inside.mean(),
            "spoiled": spoiled.sum(),
        }
        found[stage] = {name: round(float(value), 4) for name, value in figures.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, help="keep the figures, as expected.json has them")
    given = parser.parse_args()
    records: dict[str, Any] = {}
    for name, record in study(*read_rows(given.data)):
        records[name] = record
        print(
            f"{name[:64]:<64} {record['n']:>3}", *(f"{one[0]:>6.1%}" for one in list(record.values())[1:]), flush=True
        )
    result = {"overall": overall(list(records.values())), "sites": records}
    print(f"{len(records)} sites; medians and means over sites, each counting once")
    for stage, one in result["overall"].items():
        print(
            f"{stage:<12} median {one['median']:.1%}, mean {one['mean']:.1%}, coverage {one['coverage']:.1%}; "
            f"below {SMALL:.0%} and made worse by {WORSE:.0%}: {one['spoiled']:.0f}"
        )
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

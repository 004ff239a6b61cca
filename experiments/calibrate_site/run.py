"""What five measured runs of a new site are worth: the error on its other runs, before and after `prism-jax calibrate`.

python experiments/calibrate_site/run.py [--data TABLE] [--json] [--out JSON]

A site is a device generation and a framework of one source, with 15 rows or more. The population is fitted without any row of the
source. Five rows are picked by rules that do not look at measured times (spread over predicted times and numbers of nodes;
unalike in what their steps are made of), and by chance.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from experiments.step_tables.table import read_step_rows
from inference.cost_model.calibrate import Calibrator, rows_of
from inference.cost_model.folds import few_rows, row_data, usable, without
from inference.cost_model.site_density import calibrate_site
from inference.cost_model.site_fit import bands, errors, predicted_s
from inference.cost_model.site_runs import SiteRuns, kinds_of, some_of
from inference.cost_model.step_times import StepTimesData
from inference.cost_model.suggest import unalike
from prism_jax.calibration.calibration import Calibration
from prism_jax.calibration.key import CalibrationKey
from prism_jax.calibration.surrogate import StepSurrogate, sensitivities

HERE = Path(__file__).resolve().parent
STEPS = HERE.parents[1] / ".." / "shared" / "data" / "steps" / "steps.csv.gz"
FEWEST = 15  # rows of a site
N_PICK = 5
BY_CHANCE = (1, 2, 3, 5, 10)  # runs
N_CHANCE = 6  # choices of each
SEED = 0
N_DRAW = 96
OTHER_FIGURES = ("p90_ape", "coverage_90")


@dataclass(frozen=True)
class Site:
    """Rows of one source on one device generation with one framework."""

    source: str
    generation: str
    framework: str
    rows: NDArray[np.intp]


@dataclass(frozen=True)
class Scored:
    """Absolute relative errors [row] of rows that were not picked, and whether the 90 % interval held each."""

    error: NDArray[np.float64]
    inside: NDArray[np.bool_]

    def record(self) -> dict[str, float]:
        return {
            "n": len(self.error),
            "median_ape": round(float(np.median(self.error)), 4),
            "mape": round(float(self.error.mean()), 4),
            "p90_ape": round(float(np.quantile(self.error, 0.9)), 4),
            "coverage_90": round(float(self.inside.mean()), 4),
        }


def sites_of(data: StepTimesData) -> list[Site]:
    """Those with rows enough, by source."""
    source = np.array(data.names["site"])[data.site]
    generation = np.array(data.names["generation"])[data.generation]
    framework = np.array([*data.names["framework"], ""])[data.framework]
    found = []
    for name, device, software in sorted(set(zip(source, generation, framework, strict=True))):
        rows = np.flatnonzero((source == name) & (generation == device) & (framework == software))
        if len(rows) >= FEWEST:
            found.append(Site(str(name), str(device), str(software), rows))
    return found


def runs_of(data: StepTimesData, site: Site) -> SiteRuns:
    """The rows of a site as runs."""
    devices = np.unique(np.array([*data.names["device"], ""])[data.device[site.rows]])
    setting = CalibrationKey(site.generation, site.framework, str(devices[0]) if len(devices) == 1 else "")
    outline: dict[str, Any] = {item.name: getattr(data, item.name)[site.rows] for item in fields(StepSurrogate)}
    return SiteRuns(
        **outline,
        log_measured=data.log_measured[site.rows],
        left_out=(data.straggler + data.open_mean)[site.rows],
        has_experts=data.has_experts[site.rows],
        weight=np.ones(len(site.rows)),
        **kinds_of([setting] * len(site.rows)),
    )


def spread_out(population: Calibration, runs: SiteRuns, n: int = N_PICK) -> NDArray[np.intp]:
    """The run nearest to the average in predicted step time and number of nodes (logarithms), then always the one farthest from
    those picked: a rule that sees no measured time."""
    place = np.stack([np.log(predicted_s(population, runs)), runs.doublings], axis=-1)
    place = (place - place.mean(axis=0)) / np.maximum(place.std(axis=0), 1e-9)
    chosen = [int(np.argmin((place**2).sum(axis=1)))]
    while len(chosen) < n:
        apart = ((place[:, None] - place[None, chosen]) ** 2).sum(axis=-1).min(axis=1)
        chosen.append(int(np.argmax(apart)))
    return np.array(chosen)


def one_factor(population: Calibration, runs: SiteRuns, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
    """[run] absolute errors if the median error of the chosen runs is taken off all: the trivial calibration."""
    off = np.log1p(errors(population, runs))
    return np.abs(np.expm1(off - np.median(off[chosen])))


def scored(calibration: Calibration, runs: SiteRuns) -> Scored:
    found = errors(calibration, runs)
    low, high = bands(calibration, runs)
    ratio = 1.0 / (1.0 + found)  # measured over predicted
    return Scored(np.abs(found), (low <= ratio) & (ratio <= high))


def by_chance(population: Calibration, runs: SiteRuns, key: jax.Array) -> dict[str, float]:
    """Median error on the others after so many runs picked by chance."""
    rng = np.random.default_rng(SEED)
    found = {}
    for n in BY_CHANCE:
        error = []
        for _ in range(N_CHANCE):
            order = rng.permutation(runs.n_run)
            fitted = calibrate_site(population, some_of(runs, order[:n]), key=key)
            error.append(np.abs(errors(fitted, some_of(runs, order[n:]))))
        found[str(n)] = round(float(np.median(np.concatenate(error))), 4)
    return found


def study(data: StepTimesData, few: NDArray[np.intp]) -> Iterator[tuple[Site, dict[str, Any], dict[str, Scored]]]:
    """Per site: its record, and the scores of its rows that were not picked.

    Args:
        few: rows that are fitted to, of large sources not all.
    """
    key = jax.random.key(SEED)
    thin = rows_of(data, few)
    names = np.array(thin.names["site"])[thin.site]
    calibrator = Calibrator(thin)
    population: dict[str, Calibration] = {}
    for site in sites_of(data):
        if site.source not in population:
            outside = without(thin, names == site.source)
            population = {
                site.source: calibrator.fit(outside, key=key, n_draw=N_DRAW)
            }  # the one before is not needed again
        before, runs = population[site.source], runs_of(data, site)
        chosen = spread_out(before, runs)
        rest = np.setdiff1d(np.arange(runs.n_run), chosen)
        after = calibrate_site(before, some_of(runs, chosen), key=key)
        simple = one_factor(before, runs, chosen)[rest]
        other = unalike(sensitivities(runs, before.correction(runs.setting)), N_PICK)
        fitted = calibrate_site(before, some_of(runs, other), key=key)
        scores = {
            "before": scored(before, some_of(runs, rest)),
            "after": scored(after, some_of(runs, rest)),
            "after_unalike": scored(fitted, some_of(runs, np.setdiff1d(np.arange(runs.n_run), other))),
            "one_factor": Scored(simple, np.zeros(len(simple), dtype=bool)),
        }
        record = {name: score.record() for name, score in scores.items()}
        record["one_factor"].pop("coverage_90")
        chance = by_chance(before, runs, key)
        knobs = replace(calibrate_site(before, runs, key=key), nearby=None)
        least = errors(knobs, runs)  # of rows that the fit has seen
        floor = round(float(np.median(np.abs(least))), 4)
        yield site, {**record, "median_ape_by_chance": chance, "median_ape_all_seen": floor}, scores


def overall(scores: Sequence[dict[str, Scored]], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Every row counts as much, or every site."""
    found: dict[str, Any] = {}
    for name in ("before", "after", "after_unalike", "one_factor"):
        whole = Scored(*(np.concatenate([getattr(s[name], part) for s in scores]) for part in ("error", "inside")))
        found[name] = {
            "by_row": whole.record(),
            "by_site": {
                figure: round(float(np.mean([r[name][figure] for r in records])), 4)
                for figure in records[0][name]
                if figure != "n"
            },
        }
    found["one_factor"]["by_row"].pop("coverage_90")
    found["sites_within_4_percent"] = sum(r["after"]["median_ape"] <= 0.04 for r in records)
    found["sites"] = len(records)
    found["median_ape_all_seen"] = round(float(np.mean([r["median_ape_all_seen"] for r in records])), 4)
    found["median_ape_by_chance"] = {
        str(n): round(float(np.mean([r["median_ape_by_chance"][str(n)] for r in records])), 4) for n in BY_CHANCE
    }
    return found


def line(name: str, record: dict[str, Any]) -> str:
    parts = [record[part] for part in ("before", "one_factor", "after", "after_unalike")]
    medians = "".join(f"{part['median_ape']:>9.1%}" for part in parts)
    others = "".join(f"{record[part][figure]:>9.1%}" for figure in OTHER_FIGURES for part in ("before", "after"))
    return f"{name:<66}{medians}  {others}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=STEPS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="keep the figures, as expected.json has them")
    given = parser.parse_args()
    rows = usable(read_step_rows(given.data))
    data = row_data(rows)
    if not given.json:
        print(f"{'':<66}  median absolute error                 90th percentile   coverage of 90 %")
        print(f"{'site (rows scored)':<66}   before   factor    after  unalike" + "  " + 2 * "   before    after")
    records: dict[str, Any] = {}
    scores = []
    for site, record, found in study(data, few_rows(rows)):
        name = f"{site.source.split(' (')[0]}, {site.generation}, {site.framework}"
        records[name] = record
        scores.append(found)
        if not given.json:
            print(line(f"{name} ({record['after']['n']})", record), flush=True)
    result = {"overall": overall(scores, list(records.values())), "sites": records}
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if given.json:
        print(json.dumps(result, indent=1))
        return
    whole = result["overall"]
    for weighting in ("by_row", "by_site"):
        parts = {part: whole[part][weighting] for part in ("before", "after", "after_unalike", "one_factor")}
        print(line(f"overall, {weighting.replace('_', ' ')}", parts))
    print(f"{whole['sites_within_4_percent']} of {whole['sites']} sites within 4 %")
    chance = ", ".join(f"{n}: {error:.1%}" for n, error in whole["median_ape_by_chance"].items())
    print(
        f"median error if all rows of a site are fitted, on those rows, average of the sites: {whole['median_ape_all_seen']:.1%}"
    )
    print(f"median error after so many runs picked by chance, average of the sites: {chance}")


if __name__ == "__main__":
    main()

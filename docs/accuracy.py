"""Writes docs/accuracy.md and docs/accuracy.png from the JSON of a blind run:

    python -m experiments.score_steps steps.csv.gz --leave-out source --json > scores.json
    python docs/accuracy.py scores.json

The page holds errors, never measured times: the licences of the sources differ. Refitting is not needed to write it
anew."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from prism_jax.core.picture import figure_bytes
from prism_jax.core.write_file import write_bytes, write_text
from prism_jax.validation.picture import plot_accuracy
from prism_jax.validation.score import ClassScore, RowResult, Score, SourceScore, Validation, score, validation_of

DOCS = Path(__file__).resolve().parent
N_WORST, PER_SOURCE = 40, 5
FEW = 3  # rows; remarks about fewer quote the row itself, which is not ours to publish
LONGEST_REASON = 110  # characters
WITHIN = (0.05, 0.10, 0.25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "scores", type=Path, help="JSON of `python -m experiments.score_steps FILE --leave-out source --json`"
    )
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the page and the picture")
    given = parser.parse_args()
    record = json.loads(given.scores.read_text(encoding="utf-8"))
    outcome = validation_of(rows_of(record["rows"]))
    write_bytes(given.out / "accuracy.png", figure_bytes(plot_accuracy(outcome.rows), "png"))
    write_text(given.out / "accuracy.md", page(outcome, record))


def rows_of(plain: Iterable[Mapping[str, Any]]) -> list[RowResult]:
    """Rows as they were before they became JSON."""
    names = {item.name for item in fields(RowResult)}
    return [RowResult(**{name: value for name, value in row.items() if name in names}) for row in plain]


def page(outcome: Validation, record: Mapping[str, Any]) -> str:
    """The page in Markdown."""
    parts = [
        introduction(outcome, record),
        overall(outcome),
        by_evidence(outcome),
        by_feature(outcome),
        by_source(outcome),
        worst(outcome),
        excluded(outcome),
    ]
    return "\n\n".join([*parts, origin(record)]) + "\n"


def introduction(outcome: Validation, record: Mapping[str, Any]) -> str:
    inputs, n = record["inputs"], len(outcome.rows)
    way = inputs["leave_out"] or "nothing"
    what = "step without variability" if inputs["deterministic"] else "median step (p50)"
    return f"""# How far predictions are from measurements

<!-- written by docs/accuracy.py; change that, not this -->

Somebody trains a model on some GPUs and publishes how long one optimizer step takes, or the tokens or FLOP/s that
follow from it. prism-jax gets the model, the cluster, the parallel plan and the name of the training software,
predicts the {what}, and this page says how far it is off: **error = predicted / measured - 1**. There are {n:,} such
rows of {len(outcome.by_source)} sources: papers, repositories of recipes, benchmark results. None was measured by us,
and few say everything that matters.

**Scores are blind.** The cost model has constants that only measured steps can decide: how much faster or slower
kernels, links and the host are inside a whole step than alone, for a generation of devices and a style of software.
They are fitted to such rows (`experiments/calibrate_steps`). To score a {way}, they are fitted anew to the rows of all the
*other* ones, and its own rows are predicted with what came out: no row has had a part in its own prediction. Somebody
with a new cluster is in that position before the first run. The calibration that ships is fitted to all sources;
scores of it on these rows would flatter.

**Intervals are tested too.** With every prediction comes a range that should hold 90% of what would be measured,
given what the calibration leaves open: constants, the site, the configuration. `in 90 %` is the share of rows that
lie in theirs; much below 90% means overconfidence, much above means ranges that are wider than they need be.

![Predicted against measured step times, and the share of rows with at most a given error](accuracy.png)

*Left: one point per row, both axes logarithmic; the bands are ±10% and ±25%. Right: how many rows have at most a
given error.*"""


def overall(outcome: Validation) -> str:
    rows = [
        ("all rows without a known defect", outcome.overall),
        ("with those that have one", outcome.overall_with_defects),
    ]
    if outcome.overall_baseline is not None:
        rows.append(("baseline: typical utilisation", outcome.overall_baseline))
    sources = outcome.sources
    errors = [abs(row.error) for row in outcome.rows if row.error is not None and not row.defect]
    shares = ", ".join(f"{sum(e <= limit for e in errors) / len(errors):.0%} within {limit:.0%}" for limit in WITHIN)
    return f"""## All rows

{table(("rows", *FIGURES), [(name, *figures(one)) for name, one in rows])}

Every source counting once: mean over {sources.n} sources of a source's median {sources.mean_median_ape:.1%}, of its share
inside the intervals {sources.mean_coverage_90:.1%}; of {sources.n_large} sources with eight rows or more, {sources.n_large_low}
have less than 60% inside.

Of the rows without a known defect: {shares}. `median`, `mean` and `p90` are of the absolute error, `bias` is the mean
with its sign. The baseline knows no plan and no network: it says that a job reaches the model-FLOP utilisation that
the other sources typically reach on that generation of GPUs. A simulator that does not beat it is not worth its input
file."""


def by_evidence(outcome: Validation) -> str:
    """Scores of rows that much, less and little is known near, and of their sources."""
    found = {"all": ClassScore(outcome.overall, outcome.sources), **outcome.by_class}
    rows = [(name, *figures(one.rows)) for name, one in found.items()]
    sources = [(name, *figures_of_sources(one.sources)) for name, one in found.items()]
    return f"""## By evidence

An interval is as wide as the evidence near a job is thin. **Known**: many measured sources of its framework on its
generation of GPUs. **Near**: few of these, or adapters. **Far**: few sources of the generation, experts, or a step that
hangs on a network between nodes that was not measured. What each of these widens an interval by was fitted without the
source that is scored (`experiments/calibrate_steps/widths.py`). `width` is the median of high over low; `score` the mean
interval score of the logarithm, its width plus 20 times what a time lies outside; `CRPS` is of the normal law with these
bounds. Less is better.

{table(("rows", *FIGURES), rows)}

Every source counting once; `width ~ error`: rank correlation of the median width and the median error of sources.

{table(("sources", *OF_SOURCES), sources)}"""


def by_feature(outcome: Validation) -> str:
    """Scores by what rows state of their software, and of rows that state nothing of it."""
    rows = [row for row in outcome.rows if row.error is not None]
    names = sorted({name for row in rows for name in row.software})
    lines = []
    for name in names:
        values = sorted({row.software[name] for row in rows if name in row.software})
        groups = [(value, [row for row in rows if row.software.get(name) == value]) for value in values]
        groups.append(("not stated", [row for row in rows if name not in row.software]))
        for value, own in groups:
            found = score(own)
            if found.n >= FEW:
                n_source = len({row.source for row in own if not row.defect})
                lines.append((f"{name}: {value}", str(n_source), *figures(found)))
    return f"""## By software feature

What rows state of their kernels and of how these are started (`software:` in a job file). What a row does not state is a
distribution in its prediction.

{table(("feature", "sources", *FIGURES), lines)}"""


def by_source(outcome: Validation) -> str:
    ranked = sorted(outcome.by_source.items(), key=lambda item: -(item[1].median_ape or 0.0))
    scored = [(name, *figures(one)) for name, one in ranked if one.n]
    without = [name for name, one in ranked if not one.n]
    note = f"\n\nWithout a row to score: {'; '.join(map(cell, without))}." if without else ""
    return f"""## By source, worst first

Every line was predicted by a calibration that has seen no row of that source. A source is often one cluster and one
release of its software, so its rows tend to be off together: a median far from zero with a narrow spread says "this
site", not "this model of a step".

{table(("source", *FIGURES), scored)}{note}"""


def worst(outcome: Validation) -> str:
    scored = (row for row in outcome.rows if row.error is not None and not row.defect)
    ranked = sorted(scored, key=lambda row: -abs(row.error or 0.0))
    lines = [
        (row.id, row.source, f"{row.error:+.0%}", "yes" if row.inside else "no", why(row))
        for row in first_of_each(ranked)[:N_WORST]
    ]
    return f"""## The worst rows, and why

The rows with the largest errors among those without a known defect, at most {PER_SOURCE} of a source. The last column
says on what device and software the row ran and where the predicted step goes: what is wrong is mostly found in what
is large.

{table(("row", "source", "error", "in 90%", "what it is, where its time goes"), lines)}"""


def first_of_each(rows: Sequence[RowResult]) -> list[RowResult]:
    """The first rows of every source, in the order given."""
    taken: Counter[str] = Counter()
    kept = []
    for row in rows:
        taken[row.source] += 1
        if taken[row.source] <= PER_SOURCE:
            kept.append(row)
    return kept


def why(row: RowResult) -> str:
    """Device, software, and the parts of the step above a tenth."""
    whole = sum(row.parts_s.values()) or 1.0
    ranked = sorted(row.parts_s.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in ranked if seconds > 0.1 * whole)
    return f"{row.n_devices} x {row.device}, {row.framework or 'software not stated'}: {parts}"


def excluded(outcome: Validation) -> str:
    reasons = Counter(row.unsupported for row in outcome.rows if row.unsupported)
    broken = [row for row in outcome.rows if row.defect and row.error is not None]
    kinds = Counter(kind_of(row.defect) for row in broken)
    defects = Counter({kind: n for kind, n in kinds.items() if n >= FEW})
    defects["a remark of who collected the row, or of its source, about that row alone"] = len(broken) - defects.total()
    return f"""## What is left out, and why

**Not predicted: {sum(reasons.values()):,} rows.** They train something that is no decoder-only transformer, or their
source does not say what a prediction needs.

{table(("rows", "why"), counted(reasons))}

**Predicted, but not scored: {len(broken):,} rows with a known defect.** The rules are in
`experiments/step_tables/cluster.py` and look at the row, its notes and what jobs measured of their
fabric, never at how far a prediction is off. The first table scores them too, on its second line.

{table(("rows", "defect"), counted(defects))}"""


def kind_of(defect: str) -> str:
    """The first remark about a row, up to its numbers."""
    return defect.split(";")[0].split(":")[0].strip()


def counted(found: Counter[str]) -> list[tuple[str, str]]:
    return [(f"{n:,}", shortened(text)) for text, n in found.most_common() if n]


def origin(record: Mapping[str, Any]) -> str:
    inputs, versions = record["inputs"], record["versions"]
    flags = "".join((f" --leave-out {inputs['leave_out']}", " --deterministic" if inputs["deterministic"] else ""))
    files = [inputs["file"]] if isinstance(inputs["file"], str) else inputs["file"]
    name = " ".join(Path(file).name for file in files)
    return f"""## How this page is made

```
python -m experiments.score_steps {name}{flags} --seed {record["seed"]} --json > scores.json
python docs/accuracy.py scores.json
```

prism-jax {versions["prism-jax"]}, revision {str(record["git_revision"])[:12]}, JAX {versions["jax"]}. The measured
rows are public but under many licences, and are not part of this repository: the page shows errors and no measured
time."""


FIGURES = ("n", "median", "mean", "bias", "p90", "in 90%", "width", "score", "CRPS", "defect", "not predicted")
OF_SOURCES = ("n", "mean of medians", "in 90%", "score", "width ~ error")


def figures(one: Score) -> tuple[str, ...]:
    shares = (one.median_ape, one.mape, one.bias, one.p90_ape, one.coverage_90)
    signs = ("", "", "+", "", "")
    words = ["-" if value is None else f"{value:{sign}.1%}" for value, sign in zip(shares, signs, strict=True)]
    sharp = one.sharpness
    numbers = (number(sharp.width), number(sharp.interval_score), number(sharp.crps, 3))
    return (f"{one.n:,}", *words, *numbers, f"{one.n_defect:,}", f"{one.n_unsupported:,}")


def figures_of_sources(one: SourceScore) -> tuple[str, ...]:
    shares = ("-" if x is None else f"{x:.1%}" for x in (one.mean_median_ape, one.mean_coverage_90))
    return (f"{one.n:,}", *shares, number(one.mean_interval_score), number(one.width_follows_error))


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell(value) for value in line) + " |" for line in lines)


def cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"


if __name__ == "__main__":
    main()

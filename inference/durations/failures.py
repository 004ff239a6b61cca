"""Model of failure rates of GPUs, nodes and jobs, from counts of several clusters: a gamma-Poisson hierarchy.

A row is one cluster (or one cause in it): `count` interruptions of `gpus` GPUs in `nodes` nodes under `jobs` jobs, during `hours`
(or `days`, or a `window` such as "54 days"). `kind` says what a cause hits: a gpu, a node, or the job as a whole (software, data,
people); blank where counts of all kinds stand together. Rows that differ in nothing but their cause are one window, so that its
hours count once.

    count  ~ Poisson(G . sum over levels of rate[level] x exposure[level]),    G ~ Gamma(shape, shape) by cluster and kind

Clusters differ by factors G, which are integrated out: counts are negative binomial, so that a few thousand failures in one
cluster say little about the next one, whose interval is that of clusters, not of counts. Given the counts of its group a factor
is Gamma(shape + count, shape + expected).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from jax.scipy.special import gammaln
from scipy.special import gammaln as np_gammaln

from prism_jax.core.errors import DataError, FitError
from prism_jax.core.registry import did_you_mean
from prism_jax.horizon.reliability import Hazard, Reliability

from ..data.checks import groups_of, numbers_of, refuse_row, texts_of
from ..data.columns import ModelColumn
from ..engine.model import Draws, GroupScore, Model, interval
from ..engine.program import generator

LEVELS = ("gpu", "node", "job")
KINDS = (*LEVELS, "all")
_SPELLINGS = {
    **dict.fromkeys(("gpu", "device", "accelerator"), "gpu"),
    **dict.fromkeys(("node", "host", "server", "machine"), "node"),
    **dict.fromkeys(("job", "software", "run"), "job"),
    **dict.fromkeys(("all", "any", "total"), "all"),
}
COLUMNS = (
    ModelColumn("cluster", ("system", "site"), required=True, text=True, strict=True),
    ModelColumn("gpus", ("n_gpus", "accelerators", "devices"), required=True, positive=True, strict=True),
    ModelColumn("count", ("failures", "interruptions", "events", "n_failures"), required=True, strict=True, least=0.0),
    ModelColumn("nodes", ("n_nodes", "hosts", "servers"), positive=True, strict=True),
    ModelColumn("node_size", ("gpus_per_node",), positive=True, strict=True),
    ModelColumn("hours", ("window_h", "window_hours", "observed_hours"), positive=True, strict=True),
    ModelColumn("days", ("window_days", "observed_days"), positive=True, strict=True),
    ModelColumn("window", ("period",), text=True, strict=True),
    ModelColumn("jobs", ("n_jobs", "concurrent_jobs"), strict=True, least=1.0),
    ModelColumn("cause", ("failure_type", "category"), text=True, strict=True),
    ModelColumn("kind", ("level", "scope"), text=True, strict=True, choices=tuple(_SPELLINGS)),
)
_HOURS = {
    **dict.fromkeys(("h", "hour", "hours"), 1.0),
    **dict.fromkeys(("d", "day", "days"), 24.0),
    **dict.fromkeys(("week", "weeks"), 168.0),
    **dict.fromkeys(("month", "months"), 730.5),
    **dict.fromkeys(("year", "years"), 8766.0),
}
_WINDOW = re.compile(r"^([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)$")
USUAL_NODE = 8.0  # GPUs of a node, where a table names neither nodes nor their size
LARGEST = 1e15  # GPU-hours and counts: every GPU ever made, for longer than there were any


@dataclass(frozen=True)
class FailuresData:
    """Counts and exposures.

    Attributes:
        clusters: names, in the order of `cluster`.
        cluster: index into `clusters`, [group]; a group is a kind of failure in a cluster.
        kind: index into `KINDS`, [group].
        group: index of the group, [window].
        count: interruptions, [window].
        gpu_hours: GPUs times hours, [window].
        exposure_h: hours times GPUs, nodes, jobs (what the window's kind can hit), [window, level].
        levels: which of `LEVELS` the data tell apart, 1 or 0, [level].
        node_size: GPUs of a node by cluster, [cluster].
        gpus: of the largest row of a cluster, [cluster].
        causes: names, the most frequent first; reported as they are.
        cause_count: interruptions by cause, [cause].
        notes: what was assumed.
    """

    clusters: Annotated[tuple[str, ...], "cluster"]
    cluster: Annotated[np.ndarray, "group -> cluster"]
    kind: Annotated[np.ndarray, "group -> 4"]
    group: Annotated[np.ndarray, "window -> group"]
    count: Annotated[np.ndarray, "window"]
    gpu_hours: Annotated[np.ndarray, "window"]
    exposure_h: Annotated[np.ndarray, "window 3"]
    levels: Annotated[np.ndarray, "3"]
    node_size: Annotated[np.ndarray, "cluster"]
    gpus: Annotated[np.ndarray, "cluster"]
    causes: Annotated[tuple[str, ...], "cause"]
    cause_count: Annotated[np.ndarray, "cause"]
    notes: tuple[str, ...] = ()

    @property
    def n_group(self) -> int:
        """Kinds of failures by cluster."""
        return len(self.cluster)


def from_frame(frame: pd.DataFrame) -> FailuresData:
    """Counts and exposures of a checked table.

    Raises:
        DataError: a row without hours, with more nodes than GPUs, with a broken count, or no interruption at all.
    """
    gpus, count = numbers_of(frame, "gpus"), numbers_of(frame, "count")
    refuse_row(frame, count != np.round(count), "count is not a whole number. Give counts, not rates.")
    nodes, notes = _nodes(frame, gpus)
    hours = _hours(frame)
    refuse_row(frame, (hours * gpus > LARGEST) | (count > LARGEST), "hours is more than was ever run. Check the unit.")
    if not count.sum():
        raise DataError("column count: no interruption in any row: nothing can be said of their rate")
    jobs = np.nan_to_num(numbers_of(frame, "jobs"), nan=1.0)
    clusters, cluster = np.unique(frame["cluster"].astype(str).to_numpy(), return_inverse=True)
    kind = np.array([KINDS.index(_SPELLINGS[str(text).lower()]) for text in texts_of(frame, "kind", "all")])
    causes = np.array(texts_of(frame, "cause", ""), dtype=object)
    first, window = _windows(np.stack([cluster, kind, gpus, nodes, hours, jobs], axis=1), causes)
    exposure = hours[:, None] * np.stack([gpus, nodes, jobs], axis=1)
    exposure[(kind[:, None] != len(LEVELS)) & (kind[:, None] != np.arange(len(LEVELS)))] = 0.0
    pairs, group = np.unique((cluster * len(KINDS) + kind)[first], return_inverse=True)
    names, cause_count = _by_cause(causes, count)
    return FailuresData(
        clusters=tuple(str(name) for name in clusters),
        cluster=(pairs // len(KINDS)).astype(np.int64),
        kind=(pairs % len(KINDS)).astype(np.int64),
        group=group.astype(np.int64),
        count=np.bincount(window, weights=count, minlength=len(first)),
        gpu_hours=(gpus * hours)[first],
        exposure_h=exposure[first],
        levels=_told_apart(kind, gpus / jobs, gpus / nodes),
        node_size=_by_cluster(np.maximum(np.round(gpus / nodes), 1.0), cluster, len(clusters)),
        gpus=_by_cluster(gpus, cluster, len(clusters)),
        causes=names,
        cause_count=cause_count,
        notes=notes,
    )


def _windows(what: np.ndarray, causes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First row of every window, and the window of every row; a repeated cause in equal rows has another."""
    table = pd.DataFrame(what)
    again = table.assign(cause=causes).groupby([*table.columns, "cause"]).cumcount().to_numpy()
    _, first, window = np.unique(np.column_stack([what, again]), axis=0, return_index=True, return_inverse=True)
    return first, window.reshape(-1)


def _by_cause(causes: np.ndarray, count: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    named = causes != ""
    names, index = np.unique(causes[named].astype(str), return_inverse=True)
    total = np.bincount(index, weights=count[named], minlength=len(names))
    order = np.argsort(-total, kind="stable")
    return tuple(str(name) for name in names[order]), total[order]


def _told_apart(kind: np.ndarray, per_job: np.ndarray, per_node: np.ndarray) -> np.ndarray:
    """GPUs always; nodes and jobs where rows say so, or where their sizes differ twofold in rows of all kinds."""
    mixed = kind == len(LEVELS)

    def vary(size: np.ndarray) -> bool:
        return bool(mixed.any() and size[mixed].max() >= 2.0 * size[mixed].min())

    node, job = (bool((kind == LEVELS.index(name)).any()) for name in ("node", "job"))
    return np.array([1.0, float(node or vary(per_node)), float(job or vary(per_job))])


def _nodes(frame: pd.DataFrame, gpus: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    nodes, size = numbers_of(frame, "nodes"), numbers_of(frame, "node_size")
    refuse_row(frame, nodes > gpus, "nodes is more than the row's GPUs. Were the two exchanged?")
    refuse_row(
        frame, size > np.maximum(gpus, USUAL_NODE), "node_size is more than the row's GPUs. Were the two exchanged?"
    )
    blank = np.isnan(nodes) & np.isnan(size)
    note = f"{int(blank.sum()):,} rows name neither nodes nor node_size: {USUAL_NODE:g} GPUs in a node are assumed"
    size = np.where(blank, USUAL_NODE, size)
    return np.where(np.isnan(nodes), np.ceil(gpus / size), nodes), (note,) if blank.any() else ()


def _hours(frame: pd.DataFrame) -> np.ndarray:
    hours, days = numbers_of(frame, "hours"), numbers_of(frame, "days")
    hours = np.where(np.isnan(hours), 24.0 * days, hours)
    texts = texts_of(frame, "window", "")
    for row in np.flatnonzero(np.isnan(hours)):
        found = _WINDOW.match(texts[row].lower().strip())
        if found and found[2] in _HOURS:
            hours[row] = float(found[1]) * _HOURS[found[2]]
    refuse_row(frame, ~(hours > 0.0), "hours is not known. Add a column hours or days, or a window such as '54 days'.")
    return hours


def _by_cluster(value: np.ndarray, cluster: np.ndarray, n: int) -> np.ndarray:
    out = np.zeros(n)
    np.maximum.at(out, cluster, value)
    return out


def of_levels(data: FailuresData, draws: Draws) -> np.ndarray:
    """Events per hour of a GPU, a node, a job of the average cluster, [draw, level]; 0 where the data do not tell one apart."""
    return np.exp(np.asarray(draws["log_rate"])) * data.levels


def expected_counts(data: FailuresData, draws: Draws) -> np.ndarray:
    """Counts by group of a cluster that is as the average, [draw, group]."""
    by_row = of_levels(data, draws) @ data.exposure_h.T
    out = np.zeros((len(by_row), data.n_group))
    np.add.at(out.T, data.group, by_row.T)
    return out


def counts_of(data: FailuresData) -> np.ndarray:
    """Interruptions by group, [group]."""
    return np.bincount(data.group, weights=data.count, minlength=data.n_group)


def new_factors(draws: Draws, n: int, rng: np.random.Generator) -> np.ndarray:
    """Factors of `n` clusters (or kinds) that were not fitted, [draw, n]."""
    shape = np.asarray(draws["shape"])[:, None]
    return rng.gamma(np.broadcast_to(shape, (len(shape), n))) / shape


def cluster_rates(data: FailuresData, draws: Draws, cluster: str | None, rng: np.random.Generator) -> np.ndarray:
    """Events per hour of a GPU, a node, a job of `cluster`, [draw, level]; of a new cluster for None.

    Notes:
        A level takes the factor of the counts of its own kind in that cluster, else of its counts of all kinds, else a new one.
    """
    rates = of_levels(data, draws)
    factors = new_factors(draws, len(LEVELS), rng)
    if cluster is None:
        return rates * factors
    shape = np.asarray(draws["shape"])
    n, mean = counts_of(data), expected_counts(data, draws)
    own = data.cluster == data.clusters.index(cluster)
    for kind in ("all", *LEVELS):  # a level's own counts come last and stand
        for group in np.flatnonzero(own & (data.kind == KINDS.index(kind))):
            factor = rng.gamma(shape + n[group]) / (shape + mean[:, group])
            at = slice(None) if kind == "all" else LEVELS.index(kind)
            factors[:, at] = factor[:, None] if kind == "all" else factor
    return rates * factors


def per_gpu_h(rates: np.ndarray, n_gpus: float, node_size: float) -> np.ndarray:
    """Events per GPU-hour of one job on `n_gpus` GPUs, of all levels, [draw]."""
    return rates[:, 0] + rates[:, 1] / node_size + rates[:, 2] / n_gpus


CAUSES = ("GPU failures", "node failures", "job failures")


def _hazard(level: int, drawn: np.ndarray) -> Hazard:
    """The log-normal law of the mean and spread of the draws, so that rates add up; a failed job takes no node with it."""
    names = ("per_gpu_h", "per_node_h", "per_job_h")
    mean = float(drawn.mean())
    variance = float(np.log1p(drawn.var() / mean**2))
    rate = mean * np.exp(-0.5 * variance)
    return Hazard(CAUSES[level], **{names[level]: rate}, nodes_lost=0.0 if level == 2 else 1.0, log_sd=variance**0.5)


SIZES = (1024, 16384)  # GPUs of the jobs whose MTBF is stated
MOST_NAMED = 50  # clusters and causes in a report


def _mtbf_by_cluster(data: FailuresData, draws: Draws, rng: np.random.Generator) -> dict[str, dict[str, float]]:
    out = {}
    for index, name in enumerate(data.clusters[:MOST_NAMED]):
        drawn = cluster_rates(data, draws, name, rng)
        out[name] = interval(1.0 / per_gpu_h(drawn, data.gpus[index], data.node_size[index]))
    return out


def _untold(data: FailuresData) -> list[str]:
    """Names the levels that the table cannot tell from GPUs."""
    missing = [f"{LEVELS[level]}s" for level in range(len(LEVELS)) if data.levels[level] == 0.0]
    if not missing:
        return []
    return [
        f"failures of {' and '.join(missing)} cannot be separated from those of GPUs: no row has that kind, sizes do not vary. "
        "Rates then scale with GPUs alone: too short a time between failures of large jobs, and too long a one of small jobs"
    ]


def _score(name: str, left_out: FailuresData, draws: Draws, pooled: float, rng: np.random.Generator) -> GroupScore:
    from scipy.stats import poisson  # half a second, which a fit without scores does not pay

    expected, shape = expected_counts(left_out, draws), np.asarray(draws["shape"])[:, None]
    count = counts_of(left_out)
    drawn = rng.poisson(np.minimum(new_factors(draws, left_out.n_group, rng) * expected, 1e15)).sum(axis=1)
    low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95])
    total = count.sum()
    with np.errstate(divide="ignore"):
        density = (
            np_gammaln(shape + count)
            - np_gammaln(shape)
            - np_gammaln(count + 1.0)
            + shape * np.log(shape / (shape + expected))
            + np.where(count > 0, count * np.log(expected / (shape + expected)), 0.0)
        ).sum(axis=1)
    extra = {
        "log_density": float(np.logaddexp.reduce(density) - np.log(len(density))),
        "log_density_one_rate": float(poisson.logpmf(total, pooled * left_out.gpu_hours.sum())),
        "interval_factor": float(high / max(low, 1.0)),
        "ape": float(abs(middle / total - 1.0)),
    }
    return GroupScore(group=name, coverage_90=float(low <= total <= high), extra=extra)


# Events per hour. Published GPU clusters lie at 15,000 to 180,000 GPU-hours: e^1.2 = 3.3 either way of 50,000.
# Nodes (host, network, power): 3,700 to 15,000 node-hours in published clusters, some of it their GPUs'. Jobs: one in 10 hours
# (software of 1,024 GPU jobs) to one in some months.
LOG_RATE = np.log([1.0 / 50_000.0, 1.0 / 20_000.0, 1.0 / 200.0])
LOG_RATE_SD = np.array([1.2, 1.5, 1.7])
# Shape of the gamma law between clusters: coefficient of variation 0.7 at 2; 0.3 to 1.7 within two standard deviations.
LOG_SHAPE = (np.log(2.0), 0.9)


class Failures(Model[FailuresData]):
    """The model by the name "failures"."""

    name = "failures"
    columns = COLUMNS
    reported = ("log_rate", "shape")
    no_variability = (
        "a fit of failures describes what interrupts a job, not how its steps vary. Use it with "
        "`prism-jax run --reliability`."
    )

    def prepare(self, frame: pd.DataFrame) -> FailuresData:
        """Counts and exposures."""
        return from_frame(frame)

    def program(self, data: FailuresData) -> None:
        """Log-normal rates, a gamma law of clusters that is integrated out, Poisson counts."""
        log_rate = jnp.asarray(numpyro.sample("log_rate", dist.Normal(LOG_RATE, LOG_RATE_SD)))
        shape = jnp.asarray(numpyro.sample("shape", dist.LogNormal(*LOG_SHAPE)))
        exposure, count, group = jnp.asarray(data.exposure_h), jnp.asarray(data.count), jnp.asarray(data.group)
        mean = exposure @ (jnp.exp(log_rate) * jnp.asarray(data.levels))
        seen = count > 0.0
        numpyro.factor("rows", jnp.where(seen, count * jnp.log(jnp.where(seen, mean, 1.0)), 0.0).sum())
        total = jax.ops.segment_sum(count, group, data.n_group)
        expected = jax.ops.segment_sum(mean, group, data.n_group)
        groups = gammaln(shape + total) - gammaln(shape) + shape * jnp.log(shape)
        numpyro.factor("clusters", (groups - (shape + total) * jnp.log(shape + expected)).sum())

    def start(self, data: FailuresData) -> dict[str, Any]:
        """The centre of the priors, the GPUs' rate from all counts."""
        gpu_h = data.exposure_h[:, 0].sum()
        rate = LOG_RATE.copy()
        if gpu_h > 0.0:
            rate[0] = np.log((data.count.sum() + 1.0) / (2.0 * gpu_h + 1.0))
        return {"log_rate": rate, "shape": np.asarray(2.0)}

    def describe(self, data: FailuresData, draws: Draws) -> dict[str, Any]:
        """Mean hours between failures by level, of a new cluster and of those of the table; counts by cause as they were."""
        rng = np.random.default_rng(0)
        average, new = of_levels(data, draws), cluster_rates(data, draws, None, rng)
        size = float(np.median(data.node_size))
        told = [level for level in range(len(LEVELS)) if data.levels[level] > 0.0]
        return {
            "n_clusters": len(data.clusters),
            "n_failures": int(data.count.sum()),
            "node_size": size,
            "mtbf_h": {f"per_{LEVELS[level]}": interval(1.0 / average[:, level]) for level in told},
            "variation_between_clusters": interval(1.0 / np.sqrt(np.asarray(draws["shape"]))),
            "new_cluster": {
                "mtbf_gpu_h": interval(1.0 / per_gpu_h(new, SIZES[0], size)),
                **{f"mtbf_of_{n}_gpus_h": interval(1.0 / (n * per_gpu_h(new, n, size))) for n in SIZES},
            },
            "clusters": _mtbf_by_cluster(data, draws, rng),
            "causes": {name: int(n) for name, n in zip(data.causes[:MOST_NAMED], data.cause_count, strict=False)},
            "notes": [*data.notes, *_untold(data)],
        }

    def reliability(self, data: FailuresData, draws: Draws, group: str | None) -> Reliability:
        """One hazard per level that the data tell apart: rates, and what is not known of them as `log_sd`.

        Args:
            group: a cluster of the table; None: one that is not in it.

        Raises:
            FitError: no such cluster.
        """
        if group is not None and group not in data.clusters:
            raise FitError(f"cluster {group!r} is not in the fit{did_you_mean(group, data.clusters)}")
        drawn = cluster_rates(data, draws, group, np.random.default_rng(0))
        hazards = [_hazard(level, drawn[:, level]) for level in range(len(CAUSES)) if data.levels[level] > 0.0]
        where = group or "a cluster that was not measured"
        return Reliability(tuple(hazards), name=where, source=f"fit of failures in {len(data.clusters)} clusters")

    def score(
        self, data: FailuresData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[GroupScore]:
        """One score per group with failures: whether its total count lies in the 90% interval, and log densities."""
        rng = generator(key)
        pooled = data.count.sum() / data.gpu_hours.sum()
        return [
            _score(name, replace(from_frame(rows), levels=data.levels), draws, pooled, rng)
            for name, rows in groups_of(left_out, column)
            if rows["count"].to_numpy().sum()
        ]

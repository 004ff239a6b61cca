"""Slow links of nodes: how much of it persists, and how much passes, from tests of collectives that are repeated over days.

    log t = median of the size + level[scale] + persistent[scale] a[unit] + passing[scale] b[unit, day] + noise[scale] e

A unit is what a test names, one node or several, at one scale (how many nodes take part): a scale of one shows links within a
node, larger ones those between nodes. `a` is normal with a share of units that lie far, `b` and `e` are normal. Units and days
are integrated out: their means and the squares within days are all that the law needs, whatever the number of rows.

Source: normal models with nested effects (Searle, Casella and McCulloch, Variance Components, 1992, section 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array

from prism_jax.core.errors import DataError
from prism_jax.core.kernels import COLLECTIVES
from prism_jax.variability.families import LogNormal
from prism_jax.variability.family_registry import Mixture
from prism_jax.variability.tree import ClassVariability, Variability

from .data.checks import groups_of
from .data.columns import ModelColumn
from .engine.diagnostics import Checks
from .engine.model import Draws, GroupScore, Model, interval
from .engine.program import Scale, generator

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# pyright: reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)

COLUMNS = (
    ModelColumn("node", ("host", "hostname", "hosts", "node_list"), required=True, text=True),
    ModelColumn("day", ("date", "run"), required=True, text=True),
    ModelColumn("duration_s", ("time", "latency", "elapsed"), required=True, positive=True),
    ModelColumn("n_nodes", ("nodes", "num_nodes"), positive=True),
    ModelColumn("op", ("collective", "test"), text=True),
    ModelColumn("message_bytes", ("msg_bytes", "size_bytes", "bytes"), positive=True),
    ModelColumn("in_place", (), text=True),
)
LEVEL_SD = 0.1  # of log seconds around the median of a size, at one scale
PERSISTENT, PASSING, NOISE = Scale(0.01, 3.0), Scale(0.01, 3.0), Scale(0.01, 3.0)  # repeats of nccl-tests: 0.7% (A100)
FAR_HALF = (1.0, 9.0)  # Beta of twice the share of units that lie far
FAR_ABOVE = Scale(3.0, 2.0)  # their spread over that of the others, less one
NAMED, MOST_NAMED = 0.05, 12  # a unit is named that is surely (95%) slower by more than this
MOST_UNITS = 100_000
N_REPLICATED = 200  # times that days are replicated for a picture
SMALLEST_CV = 1e-5


@dataclass(frozen=True)
class LinksData:
    """Tests of collectives.

    Attributes:
        scales: numbers of nodes that tests span, as text.
        units: what tests name, [unit].
        scale: of every unit, [unit].
        unit: of every day of a unit, [day].
        n, mean: tests on that day, and their mean log seconds over the median of their size, [day].
        square, dof: sums of squares within days, and their degrees of freedom, [scale].
    """

    scales: Annotated[tuple[str, ...], "scale"]
    units: Annotated[tuple[str, ...], "unit"]
    scale: Annotated[np.ndarray, "unit -> scale"]
    unit: Annotated[np.ndarray, "day -> unit"]
    n: Annotated[np.ndarray, "day"]
    mean: Annotated[np.ndarray, "day"]
    square: Annotated[np.ndarray, "scale"]
    dof: Annotated[np.ndarray, "scale"]


class NodeLinks(Model[LinksData]):
    """The model by the name "links"."""

    name = "links"
    columns = COLUMNS
    reported = ("level", "persistent", "passing", "noise", "far_prob", "far_spread")

    def prepare(self, frame: pd.DataFrame) -> LinksData:
        """Days of units of a checked table.

        Raises:
            DataError: no unit was tested on several days, or there are too many.
        """
        return links_data(frame, _middles(frame))

    def program(self, data: LinksData) -> None:
        """The NumPyro model; units and days are integrated out."""

        def spread(name: str, prior: Scale) -> Any:
            return jnp.asarray(numpyro.sample(name, prior.law().expand([len(data.scales)]).to_event(1)))

        level = numpyro.sample("level", dist.Normal(0.0, LEVEL_SD).expand([len(data.scales)]).to_event(1))
        persistent, passing, noise = (
            spread("persistent", PERSISTENT),
            spread("passing", PASSING),
            spread("noise", NOISE),
        )
        half, above = numpyro.sample("far_half", dist.Beta(*FAR_HALF)), numpyro.sample("far_above", FAR_ABOVE.law())
        prob = numpyro.deterministic("far_prob", 0.5 * jnp.asarray(half))
        far = numpyro.deterministic("far_spread", 1.0 + jnp.asarray(above))
        of_day, n_unit = jnp.asarray(data.scale)[data.unit], len(data.units)
        precision = 1.0 / (passing[of_day] ** 2 + noise[of_day] ** 2 / data.n)
        total, first, second = (
            jax.ops.segment_sum(precision * data.mean**k, jnp.asarray(data.unit), n_unit) for k in range(3)
        )
        days = 0.5 * (jnp.log(precision).sum() - (second - first**2 / total).sum() - jnp.log(total).sum())
        left, p = first / total - jnp.asarray(level)[data.scale], persistent[jnp.asarray(data.scale)]
        near, distant = (dist.Normal(0.0, jnp.sqrt(s**2 + 1.0 / total)).log_prob(left) for s in (p, p * far))
        units = jnp.logaddexp(jnp.log1p(-prob) + near, jnp.log(prob) + distant).sum()
        within = -(data.dof * jnp.log(noise) + 0.5 * data.square / noise**2).sum()
        numpyro.factor("tests", days + units + within)

    def start(self, data: LinksData) -> dict[str, Any]:
        """Spreads from moments."""
        n = len(data.scales)
        noise = np.sqrt(data.square / np.maximum(data.dof, 1.0))
        return {
            "level": np.zeros(n),
            "persistent": np.full(n, PERSISTENT.median),
            "passing": np.full(n, PASSING.median),
            "noise": np.where(data.dof > 0, np.maximum(noise, 1e-5), NOISE.median),
            "far_half": 0.1,
            "far_above": FAR_ABOVE.median,
        }

    def describe(self, data: LinksData, draws: Draws) -> dict[str, Any]:
        """Spreads at every scale, and how slow every unit is persistently; all with 90% intervals."""
        slowness = np.expm1(self.slowness(data, draws, np.random.default_rng(0)))
        ranked = np.argsort(-np.median(slowness, axis=0), kind="stable")
        sure = [at for at in ranked.tolist() if np.quantile(slowness[:, at], 0.05) > NAMED]
        named = [
            f"{data.units[at]} {np.median(slowness[:, at]):+.0%} (scale {data.scales[data.scale[at]]})" for at in sure
        ]
        more = f" and {len(named) - MOST_NAMED:,} more" if len(named) > MOST_NAMED else ""
        return {
            "n_tests": int(data.n.sum()),
            "n_days": len(data.n),
            "scales": {
                name: {
                    f"{part}_cv": interval(np.asarray(draws[part])[:, at])
                    for part in ("persistent", "passing", "noise")
                }
                for at, name in enumerate(data.scales)
            },
            "far": {"prob": interval(draws["far_prob"]), "spread_over_others": interval(draws["far_spread"])},
            "nodes": [
                {"name": data.units[at], "n_nodes": data.scales[data.scale[at]], "slower": interval(slowness[:, at])}
                for at in ranked.tolist()
            ],
            "notes": [f"slow for good: {', '.join(named[:MOST_NAMED])}{more}"] if named else [],
        }

    def replicate(self, data: LinksData, draws: Draws, key: Array) -> Checks:
        """Means of days over the median of their size against those of as many new units."""
        some = {name: np.asarray(value)[:N_REPLICATED] for name, value in draws.items()}
        drawn = _of_days(data, data.scale, some, generator(key))
        return Checks(np.exp(data.mean), np.exp(drawn), "seconds of a node and day, over the median of nodes")

    def slowness(self, data: LinksData, draws: Draws, rng: np.random.Generator) -> np.ndarray:
        """Persistent log factor of every unit, drawn given its days [draw, unit]."""
        persistent, passing, noise, level = (np.asarray(draws[k]) for k in ("persistent", "passing", "noise", "level"))
        prob, far = (np.asarray(draws[k])[:, None] for k in ("far_prob", "far_spread"))
        of_day = data.scale[data.unit]
        precision = 1.0 / (passing[:, of_day] ** 2 + noise[:, of_day] ** 2 / data.n)
        total, first = np.zeros((2, len(precision), len(data.units)))
        np.add.at(total.T, data.unit, precision.T)
        np.add.at(first.T, data.unit, (precision * data.mean).T)
        left, near = first / total - level[:, data.scale], persistent[:, data.scale] ** 2
        distant = near * far**2
        odds = [
            np.log(share) - 0.5 * (np.log(v + 1.0 / total) + left**2 / (v + 1.0 / total))
            for share, v in ((1.0 - prob, near), (prob, distant))
        ]
        is_far = rng.random(left.shape) < 1.0 / (1.0 + np.exp(np.clip(odds[0] - odds[1], -700.0, 700.0)))
        precise = total + 1.0 / np.where(is_far, distant, near)
        return total * left / precise + rng.standard_normal(left.shape) / np.sqrt(precise)

    def slowdowns(self, data: LinksData, draws: Draws) -> pd.DataFrame:
        """A table for `--slowdowns`: median factor of the links (`link`) and NICs (`nic`, at the largest scale) of every node."""
        factor = np.exp(np.median(self.slowness(data, draws, np.random.default_rng(0)), axis=0))
        found: dict[str, dict[str, float]] = {}
        for at in np.argsort([float(data.scales[scale]) for scale in data.scale], kind="stable").tolist():
            column = "link" if float(data.scales[data.scale[at]]) <= 1.0 else "nic"
            found.setdefault(data.units[at], {})[column] = float(factor[at])
        return pd.DataFrame.from_dict(found, orient="index").rename_axis("host").reset_index()

    def variability(self, data: LinksData, draw: Mapping[str, np.ndarray]) -> Variability:
        """Links of the smallest scale that leaves a node (else within it): what passes in days persists within a run."""
        scale = [float(name) for name in data.scales]
        at = min(range(len(scale)), key=lambda k: (scale[k] <= 1.0, scale[k]))
        bulk, passing, noise = (max(float(draw[k][at]), SMALLEST_CV) for k in ("persistent", "passing", "noise"))
        far = bulk * float(draw["far_spread"])
        node = Mixture(float(np.hypot(bulk, passing)), float(draw["far_prob"]), 1.0, float(np.hypot(far, passing)))
        own = ClassVariability(node=node, call=LogNormal(noise))
        return Variability("links", dict.fromkeys(COLLECTIVES, own), source=f"{int(data.n.sum())} tests")

    def score(self, data: LinksData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[GroupScore]:
        """Coverage of the mean of every day of new units."""
        rng, middle, out = generator(key), _middles(left_out), []
        for name, rows in groups_of(left_out, column):
            new = links_data(rows, middle)
            known = [data.scales.index(scale) if scale in data.scales else -1 for scale in new.scales]
            scale = np.array(known)[new.scale]
            some = scale[new.unit] >= 0
            if not some.any():
                continue
            low, high = np.quantile(_of_days(new, scale, draws, rng), [0.05, 0.95], axis=0)
            inside = ((new.mean >= low) & (new.mean <= high))[some]
            out.append(GroupScore(group=name, coverage_90=float(inside.mean()), extra={"n_days": float(some.sum())}))
        return out


def _of_days(data: LinksData, scale: np.ndarray, draws: Draws, rng: np.random.Generator) -> np.ndarray:
    """[draw, day] mean log seconds of days of new units, `scale` [unit] their place among those of the fit."""
    persistent, passing, noise, level = (
        np.asarray(draws[part])[:, scale] for part in ("persistent", "passing", "noise", "level")
    )
    is_far = rng.random(persistent.shape) < np.asarray(draws["far_prob"])[:, None]
    wide = np.where(is_far, np.asarray(draws["far_spread"])[:, None], 1.0)
    mean = (level + persistent * wide * rng.standard_normal(persistent.shape))[:, data.unit]
    spread = np.hypot(passing[:, data.unit], noise[:, data.unit] / np.sqrt(data.n))
    return mean + spread * rng.standard_normal(spread.shape)


def _series(frame: pd.DataFrame) -> pd.Series:
    """Operation, size, scale and place of every row, as text."""
    parts = [frame[name].astype(str) for name in ("op", "message_bytes", "n_nodes", "in_place") if name in frame]
    return parts[0].str.cat(parts[1:], sep=" ") if parts else pd.Series("", index=frame.index)


def _middles(frame: pd.DataFrame) -> pd.Series:
    """Log seconds of every row's operation, size and scale: the median over units of their medians."""
    log_s, series = np.log(frame["duration_s"].astype(float)), _series(frame)
    of_unit = log_s.groupby([series, frame["node"].astype(str)]).median()
    return series.map(of_unit.groupby(level=0).median())


def links_data(frame: pd.DataFrame, middle: pd.Series) -> LinksData:
    """Sufficient statistics of rows over the log seconds `middle` of each.

    Raises:
        DataError: no unit has several days, or there are too many units.
    """
    node = frame["node"].astype(str)
    count = node.str.count(r"[,;\s]+") + 1.0
    scale = frame["n_nodes"].astype(float).fillna(count) if "n_nodes" in frame else count
    table = pd.DataFrame(
        {
            "scale": scale.map("{:g}".format),
            "node": node,
            "day": frame["day"].astype(str).str.slice(0, 10),  # of a time its date
            "value": np.log(frame["duration_s"].astype(float)) - middle.loc[frame.index],
        }
    ).sort_values(["scale", "node", "day", "value"])
    days = table.groupby(["scale", "node", "day"])["value"].agg(["size", "mean"]).reset_index()
    units = days.groupby(["scale", "node"]).size().reset_index(name="days")
    if units["days"].max() < 2:
        raise DataError(
            "no node was tested on several days, so that nothing tells what persists. Is the column day right?"
        )
    if len(units) > MOST_UNITS:
        raise DataError(f"more than {MOST_UNITS:,} nodes. Is the column what it should be?")
    scales = tuple(sorted(units["scale"].unique(), key=float))
    within = table["value"] - table.groupby(["scale", "node", "day"])["value"].transform("mean")
    square = (within**2).groupby(table["scale"]).sum()
    n_row, n_day = table.groupby("scale").size(), days.groupby("scale").size()
    place = {key: at for at, key in enumerate(zip(units["scale"], units["node"], strict=True))}
    return LinksData(
        scales=scales,
        units=tuple(units["node"]),
        scale=np.array([scales.index(name) for name in units["scale"]], dtype=np.int64),
        unit=np.array([place[key] for key in zip(days["scale"], days["node"], strict=True)], dtype=np.int64),
        n=days["size"].to_numpy(dtype=float),
        mean=days["mean"].to_numpy(dtype=float),
        square=np.array([square[name] for name in scales], dtype=float),
        dof=np.array([n_row[name] - n_day[name] for name in scales], dtype=float),
    )

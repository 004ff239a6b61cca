"""Start-up of a cloud machine: provisioning, staging and booting, by tier (on demand or preemptible) and region.

    ln s[part] = level[part, tier] + region[part] + error,   Student's errors whose scale is of the part and the tier

A start is often near its median and at times far off; regions differ less than tiers do. A region that was not measured is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array

from prism_jax.cloud.laws import PARTS, StartUpLaw
from prism_jax.core.errors import DataError

from .data.checks import groups_of, texts_of
from .data.columns import ModelColumn
from .engine.model import Draws, GroupScore, Model, interval
from .engine.program import Scale, generator
from .sums import chosen

COLUMNS = (
    *(
        ModelColumn(f"{part}_s", (part,), required=True, strict=True, positive=True)
        for part in PARTS
    ),
    ModelColumn("tier", ("kind", "market"), text=True, strict=True),
    ModelColumn("region", ("zone", "location"), text=True, strict=True),
)  # fmt: skip
MEDIAN_S = (2.0, 30.0, 40.0)  # of the parts: what clouds' interfaces show, a second or two, and some tens of seconds
LEVEL_SD = 1.0  # of log seconds around that
REGION_SD = 0.15  # of log seconds: regions have the same machines
ERROR = Scale(0.1, 2.5)
TAIL = 4.0  # degrees of freedom
MOST_GROUPS = 200


@dataclass(frozen=True)
class StartupData:
    """Starts.

    Attributes:
        tiers, regions: names; empty where a row names none.
        tier, region: of each start, [start].
        log_s: of its parts, [start, 3].
    """

    tiers: Annotated[tuple[str, ...], "tier"]
    regions: Annotated[tuple[str, ...], "region"]
    tier: Annotated[np.ndarray, "start -> tier"]
    region: Annotated[np.ndarray, "start -> region"]
    log_s: Annotated[np.ndarray, "start part"]


class Startup(Model[StartupData]):
    """The model by the name "startup"."""

    name = "startup"
    columns = COLUMNS
    reported = ("level", "error")
    no_variability = "a fit of start-up describes seconds until a machine runs, not how steps vary."

    def prepare(self, frame: pd.DataFrame) -> StartupData:
        """Starts of a checked table.

        Raises:
            DataError: there are too many tiers or regions.
        """
        tier, region = texts_of(frame, "tier"), texts_of(frame, "region")
        tiers, regions = tuple(sorted(set(tier))), tuple(sorted(set(region)))
        if max(len(tiers), len(regions)) > MOST_GROUPS:
            raise DataError(f"more than {MOST_GROUPS} tiers or regions. Are the columns what they should be?")
        return StartupData(
            tiers=tiers,
            regions=regions,
            tier=np.array([tiers.index(name) for name in tier], dtype=np.int64),
            region=np.array([regions.index(name) for name in region], dtype=np.int64),
            log_s=np.log(np.stack([frame[f"{part}_s"].to_numpy(dtype=float) for part in PARTS], axis=1)),
        )

    def program(self, data: StartupData) -> None:
        """Levels and errors of tiers and parts, regions non-centred."""
        n_part, n_tier = len(PARTS), len(data.tiers)
        middle = jnp.log(jnp.asarray(MEDIAN_S))
        level = numpyro.sample("level", dist.Normal(middle, LEVEL_SD).expand([n_tier, n_part]).to_event(2))
        region = numpyro.sample("region", dist.Normal().expand([len(data.regions), n_part]).to_event(2))
        error = numpyro.sample("error", ERROR.law().expand([n_tier, n_part]).to_event(2))
        mean = jnp.asarray(level)[data.tier] + REGION_SD * jnp.asarray(region)[data.region]
        density = dist.StudentT(TAIL, mean, jnp.asarray(error)[data.tier]).log_prob(jnp.asarray(data.log_s))
        numpyro.factor("starts", density.sum())

    def start(self, data: StartupData) -> dict[str, Any]:
        """The centres of the priors."""
        shape = len(data.tiers), len(PARTS)
        return {
            "level": np.broadcast_to(np.log(MEDIAN_S), shape).copy(),
            "region": np.zeros((len(data.regions), len(PARTS))),
            "error": np.full(shape, ERROR.median),
        }

    def describe(self, data: StartupData, draws: Draws) -> dict[str, Any]:
        """Seconds of single starts: of every tier in a region that was not measured, and in those that were."""
        rng = np.random.default_rng(0)
        region, level = np.asarray(draws["region"]), np.asarray(draws["level"])
        return {
            "n_starts": len(data.log_s),
            "tiers": {
                name or "not named": {
                    "start_s": interval(self._drawn(data, draws, place, None, rng).sum(axis=1)),
                    **{f"{part}_s": interval(np.exp(level[:, place, at])) for at, part in enumerate(PARTS)},
                }
                for place, name in enumerate(data.tiers)
            },
            "regions": {
                name or "not named": {
                    part: interval(np.exp(REGION_SD * region[:, place, at])) for at, part in enumerate(PARTS)
                }
                for place, name in enumerate(data.regions)
            },
        }

    def law(
        self, data: StartupData, draws: Draws, tier: str = "", region: str | None = None, seed: int = 0
    ) -> StartUpLaw:
        """Seconds of single starts, [draw, part].

        Args:
            tier: of the fit; may be left out where there is one.
            region: of the fit; None or any other: one that was not measured.

        Raises:
            FitError: no such tier.
        """
        tier = chosen("tier", tier, data.tiers)
        at = data.regions.index(region) if region in data.regions else None
        drawn = self._drawn(data, draws, data.tiers.index(tier), at, np.random.default_rng(seed))
        where = region if at is not None else "a region that was not measured"
        return StartUpLaw(drawn, f"{len(data.log_s)} starts; {tier or 'one tier'}, {where}")

    def _drawn(
        self, data: StartupData, draws: Draws, tier: int, region: int | None, rng: np.random.Generator
    ) -> np.ndarray:
        """Seconds of a single start per draw, [draw, part]."""
        level = np.asarray(draws["level"])[:, tier]
        shift = rng.standard_normal(level.shape) if region is None else np.asarray(draws["region"])[:, region]
        error = np.asarray(draws["error"])[:, tier] * rng.standard_t(TAIL, level.shape)
        return np.exp(np.clip(level + REGION_SD * shift + error, -20.0, 20.0))

    def score(
        self, data: StartupData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[GroupScore]:
        """Coverage of whole starts, error of the median, and the continuous ranked score with that of all other starts pooled."""
        rng, out = generator(key), []
        pooled = np.exp(data.log_s).sum(axis=1)
        for name, rows in groups_of(left_out, column):
            new = self.prepare(rows)
            known = [tier in data.tiers for tier in new.tiers]
            parts: list[tuple[np.ndarray, np.ndarray]] = [
                (
                    np.exp(new.log_s[new.tier == place]).sum(axis=1),
                    self._drawn(data, draws, data.tiers.index(tier), None, rng).sum(axis=1),
                )
                for place, tier in enumerate(new.tiers)
                if known[place]
            ]
            if parts:
                out.append(_score(name, parts, pooled))
        return out


def _score(name: str, parts: Sequence[tuple[np.ndarray, np.ndarray]], pooled: np.ndarray) -> GroupScore:
    """Score of measured and drawn seconds of every tier."""
    measured = np.concatenate([one for one, _ in parts])
    inside = [(one >= np.quantile(drawn, 0.05)) & (one <= np.quantile(drawn, 0.95)) for one, drawn in parts]
    trivial = (measured >= np.quantile(pooled, 0.05)) & (measured <= np.quantile(pooled, 0.95))
    extra = {
        "median_ape": float(np.mean([abs(np.median(drawn) / np.median(one) - 1.0) for one, drawn in parts])),
        "median_ape_pooled": float(np.mean([abs(np.median(pooled) / np.median(one) - 1.0) for one, _ in parts])),
        "crps_s": float(np.mean(np.concatenate([_crps(one, drawn) for one, drawn in parts]))),
        "crps_pooled_s": float(np.mean(_crps(measured, pooled))),
        "coverage_90_pooled": float(trivial.mean()),
        "n_starts": float(len(measured)),
    }
    return GroupScore(group=name, coverage_90=float(np.concatenate(inside).mean()), extra=extra)


def _crps(measured: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Continuous ranked probability score of each measured value, in its unit."""
    ordered = np.sort(drawn)
    n = len(ordered)
    spread = (ordered * (2.0 * np.arange(1, n + 1) - n - 1.0)).sum() / n**2
    return np.abs(ordered[None, :] - measured[:, None]).mean(axis=1) - spread

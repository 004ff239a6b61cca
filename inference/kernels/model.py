"""Efficiency (share of peak FLOP/s) of matrix products and fused attention by shape, with uncertainty.

Log efficiency of a table (op, dtype, GPU, software) is a smooth function of the shape plus a field of residuals. The smooth
part's coefficients deviate from those of the class (op, dtype) and are integrated out; sampled are the spreads. The field is
carried over from the nearest measured shapes, and what lies far from all of them is marked as extrapolated (`predict`).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array

from prism_jax.cost.efficiency import MeasuredTables
from prism_jax.system.hardware import Cluster

from ..engine.model import Draws, GroupScore, Model, interval
from ..engine.program import generator
from . import predict
from .cost import measured_constants
from .data import COLUMNS, START_LEVEL, KernelsData, from_frame
from .laws import BLOCKS

# Spread of coefficients by block (level, shape, roofline, waves), in log efficiency per standard deviation of the feature.
# The level of an op and dtype: 25 to 100% of peak; terms of up to a third; waves a tenth
CLASS_SCALE = (0.7, 0.3, 0.3, 0.1)
TABLE_SCALE = (0.2, 0.1, 0.1, 0.05)  # GPUs and software of one class: a third of that
SCALE_FACTOR = 2.0  # one standard deviation of each of these, as a factor
MOST = 3.0  # times that, and no more: shapes whose law bends would else be told by slopes that no GPU has
NOISE = (-3.0, 0.7)  # log of 0.05: what smooth features leave of one kernel's speed, 1-20%
NOISE_SPREAD = 0.5  # tables differ in it by a factor of 1.6


class Kernels(Model[KernelsData]):
    """The model by the name "kernels"."""

    name = "kernels"
    default_method = "map"
    columns = COLUMNS
    reported = ("noise_centre", "table_scale", "class_scale")
    no_variability = (
        "a kernels fit describes a cost (the share of peak that kernels reach), not a variability. "
        "`Fit.measured_cost` is that cost, `inference.kernels.predict.efficiency` that of single kernels."
    )

    def prepare(self, frame: pd.DataFrame) -> KernelsData:
        """Cells, sums of products, and the field of residuals."""
        return from_frame(frame)

    def program(self, data: KernelsData) -> None:
        """Spreads of coefficients by block, and the noise of every table."""
        factor = float(np.log(SCALE_FACTOR))
        of_table = dist.TruncatedNormal(
            jnp.log(jnp.array(TABLE_SCALE)), factor, high=jnp.log(MOST * jnp.array(TABLE_SCALE))
        )
        table_scale = numpyro.sample(
            "table_scale", dist.TransformedDistribution(of_table, dist.transforms.ExpTransform()).to_event(1)
        )
        class_scale = numpyro.sample("class_scale", dist.LogNormal(jnp.log(jnp.array(CLASS_SCALE)), factor).to_event(1))
        centre = numpyro.sample("noise_centre", dist.Normal(*NOISE))
        log_noise = numpyro.sample(
            "log_noise", dist.Normal(centre, NOISE_SPREAD).expand([len(data.tables)]).to_event(1)
        )
        numpyro.factor(
            "cells",
            predict.log_likelihood(data, jnp.exp(log_noise), jnp.asarray(table_scale), jnp.asarray(class_scale)),
        )

    def start(self, data: KernelsData) -> dict[str, Any]:
        """Prior centres, and the spread that a regression table by table leaves."""
        left = [np.std(data.residual[data.cell_table == t]) for t in range(len(data.tables))]
        log_noise = np.log(np.clip(left, 0.005, 0.5))
        return {
            "table_scale": np.array(TABLE_SCALE),
            "class_scale": np.array(CLASS_SCALE),
            "noise_centre": np.asarray(float(np.mean(log_noise))),
            "log_noise": log_noise,
        }

    def describe(self, data: KernelsData, draws: Draws) -> dict[str, Any]:
        """Spreads by block, the field of residuals, and tables with their level and noise."""
        noise = np.exp(np.median(np.asarray(draws["log_noise"]), axis=0))
        tables = {}
        for t, name in enumerate(data.tables):
            of = data.cell_table == t
            speed = np.exp(START_LEVEL + data.log_efficiency[of])
            tables[name] = {
                "n_shapes": int(of.sum()),
                "median_efficiency": float(np.median(speed)),
                "best_efficiency": float(speed.max()),
                "noise": float(noise[t]),
            }
        between = {name: interval(np.asarray(draws["table_scale"])[:, b]) for b, name in enumerate(BLOCKS)}
        return {
            "n_shapes": len(data.cell_table),
            "n_rows_dropped": data.n_dropped,
            "n_shapes_in_small_tables": data.n_few,
            "tables": tables,
            "spread_between_tables": between,
            "field": {"reach_doublings": data.reach, "unshared": data.nugget, "degrees_of_freedom": data.tail},
            "extrapolates": predict.RULE,
            "verdict": f"{len(data.tables)} tables of {len(data.classes)} classes; between measured shapes the residual of the "
            f"nearest {data.reach:g} doublings is carried over, beyond them predictions are marked as extrapolated",
        }

    def measured_cost(
        self, data: KernelsData, draws: Draws, cluster: Cluster, dtype: str, n_draw: int, key: Array
    ) -> MeasuredTables:
        """Constants of the cluster's device, from the shapes and the field of their residuals."""
        rng = generator(key)
        return measured_constants(data, cluster.device, dtype, n_draw, rng)

    def score(
        self, data: KernelsData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[GroupScore]:
        """Relative error of kernel times by left-out group, with those of the nearest measured shape and of the median."""
        return predict.scores(data, draws, left_out, column, key)

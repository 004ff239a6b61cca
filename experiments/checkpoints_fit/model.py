"""How long checkpoints take: a linear hierarchy of log seconds over storage, method and source.

Effects are integrated out (the model is Gaussian given its three spreads), so that three numbers are sampled, whatever the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array

from experiments.checkpoints_fit import predict as predict
from experiments.checkpoints_fit.data import COLUMNS, CheckpointsData, from_frame
from inference.engine.model import Draws, GroupScore, Model, interval

# Spreads of log seconds, medians and factors of one standard deviation: sources share no hardware, methods differ in how they
# stream, repeats on a shared store differ by tens of percent.
SPREADS = {"source_sd": (0.7, 1.8), "method_sd": (0.4, 1.8), "operation_sd": (0.4, 1.8), "noise": (0.3, 1.8)}
LEVELS = ("", "source_sd", "method_sd", "operation_sd")  # spreads of the effects, by level


class Checkpoints(Model[CheckpointsData]):
    """The model by the name "checkpoints"."""

    name = "checkpoints"
    columns = COLUMNS
    reported = tuple(SPREADS)
    no_variability = "a fit of checkpoints describes seconds of saves and loads, not how steps vary."

    def prepare(self, frame: pd.DataFrame) -> CheckpointsData:
        """Sufficient statistics."""
        return from_frame(frame)

    def program(self, data: CheckpointsData) -> None:
        """Three spreads; effects are integrated out."""
        site = {
            name: jnp.asarray(numpyro.sample(name, dist.LogNormal(jnp.log(median), jnp.log(factor))))
            for name, (median, factor) in SPREADS.items()
        }
        root, weight, _ = _posterior(data, site)
        rest = data.rr / site["noise"] ** 2 - weight @ jax.scipy.linalg.cho_solve((root, True), weight)
        log_det = 2.0 * jnp.log(jnp.diag(root)).sum()
        numpyro.factor("log_seconds", -0.5 * (rest + log_det) - data.n_obs * jnp.log(site["noise"]))

    def complete(self, data: CheckpointsData, draws: Draws, key: Array) -> dict[str, np.ndarray]:
        """Effects by feature, their priors' means included."""

        def one(given: tuple[dict[str, Array], Array]) -> Array:
            site, normal = given
            root, weight, scale = _posterior(data, site)
            mean = jax.scipy.linalg.cho_solve((root, True), weight)
            drawn = jax.scipy.linalg.solve_triangular(root.T, normal, lower=False)
            return jnp.asarray(data.prior_mean) + scale * (mean + drawn)

        with jax.enable_x64(True):
            sites = {name: jnp.asarray(draws[name]) for name in self.reported}
            normal = jax.random.normal(key, (len(sites["noise"]), len(data.names)))
            return {"effect": np.asarray(jax.jit(lambda given: jax.lax.map(one, given))((sites, normal)))}

    def start(self, data: CheckpointsData) -> dict[str, Any]:
        """The centres of the priors."""
        return {name: np.asarray(median) for name, (median, _) in SPREADS.items()}

    def describe(self, data: CheckpointsData, draws: Draws) -> dict[str, Any]:
        """Spreads and effects as factors on seconds."""
        effect = np.asarray(draws["effect"])
        slopes = {name: interval(effect[:, data.names.index(name)]) for name in ("size", "writers")}
        factors = {
            name: interval(np.exp(effect[:, index]))
            for index, name in enumerate(data.names)
            if name not in slopes and data.zz[index, index] > 0.0
        }
        return {
            "n_observations": data.n_obs,
            "n_sources": int((data.level == 1).sum()),
            **{f"spread_{name}": interval(draws[name]) for name in self.reported},
            "power_of_bytes": {name: value + 1.0 for name, value in slopes["size"].items()},
            "power_of_writers": slopes["writers"],
            "factors": factors,
            "notes": list(data.notes),
        }

    def score(
        self, data: CheckpointsData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[GroupScore]:
        """Errors on sources that were left out, beside bytes by one bandwidth."""
        return predict.scores(data, draws, left_out, column, key)


def _posterior(data: CheckpointsData, site: Mapping[str, Any]) -> tuple[Array, Array, Array]:
    """Cholesky factor of the effects' precision and their weight, in units of their prior spreads, and these spreads."""
    spreads = jnp.stack([jnp.ones_like(site["noise"]), *(site[name] for name in LEVELS[1:])])
    scale = jnp.asarray(data.prior_sd) * spreads[jnp.asarray(data.level)]
    precision = jnp.eye(len(data.names)) + scale[:, None] * jnp.asarray(data.zz) * scale / site["noise"] ** 2
    return jnp.linalg.cholesky(precision), scale * jnp.asarray(data.zr) / site["noise"] ** 2, scale
